"""Runs that were begun from Python, in a report."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from onefold import distill
from onefold.report import collect


def net() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3))


def data(count: int) -> tuple[Tensor, Tensor]:
    return torch.randint(256, (count, 1, 4, 4), dtype=torch.uint8), torch.arange(count) % 3


def test_teachers_of_a_folder_are_an_ensemble_whoever_trained_them(tmp_path: Path) -> None:
    train, val, test = data(50), data(20), data(30)
    for seed, name in enumerate(("teacher-0", "teacher-1", "other")):
        torch.manual_seed(seed)
        given = {"method": "supervised", "perturbation": "none", "out": tmp_path / name}
        distill(None, net(), train, val=val, test=test, epochs=1, workers=0, **given)  # type: ignore[arg-type]
    answers, notes = collect([tmp_path])
    assert notes == []
    found = sorted((answer.label, len(answer.paths)) for answer in answers)
    assert found == [("ensemble of 1", 1), ("ensemble of 2", 2), *[("single network", 1)] * 3]


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
