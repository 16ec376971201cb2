"""Runs that were begun from Python, in a report."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from onefold import distill
from onefold.report import collect


def net() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3))


def data(count: int) -> tuple[Tensor, Tensor]:
    return torch.randint(256, (count, 1, 4, 4), dtype=torch.uint8), torch.arange(count) % 3


@pytest.mark.filterwarnings("ignore:the temperature is 1000")  # labels say nothing of the images
def test_a_report_knows_how_many_teachers_there_were(tmp_path: Path) -> None:
    torch.manual_seed(0)
    for count, method in ((3, "kd"), (1, "kd"), (2, "latentbe")):
        distill(
            [net() for _ in range(count)],
            net(),
            data(50),
            val=data(20),
            test=data(30),
            method=method,
            perturbation="none",
            epochs=2,
            batch_size=16,
            lr=0.02,
            workers=0,
            out=tmp_path / f"{method} of {count}",
        )
    answers, notes = collect([tmp_path])
    assert notes == []
    found = sorted((answer.label, answer.members) for answer in answers)
    assert found == [("KD", 3), ("LatentBE", 2), ("Single KD", 1)]
