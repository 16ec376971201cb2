"""What `distill` trains with where no perturbation is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from onefold import distill
from onefold.methods import Method, latent_be, plain
from onefold.objectives import kd, one_to_one
from onefold.run import RunFolder


def net() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3))


def data(count: int) -> tuple[Tensor, Tensor]:
    return torch.randint(256, (count, 1, 4, 4), dtype=torch.uint8), torch.arange(count) % 3


def same(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(v, other.state_dict()[k]) for k, v in one.state_dict().items())


@pytest.mark.parametrize(
    ("method", "count", "expected"),
    [
        ("supervised", 0, "none"),
        ("kd", 2, "none"),
        ("aekd", 2, "none"),
        ("proxy-end2", 2, "none"),
        ("be", 2, "tdiv-sdiv"),
        ("latentbe", 2, "tdiv-sdiv"),
        ("latentbe", 1, "none"),
        (Method("mine", plain, kd), 2, "none"),
        (Method("mine", latent_be, one_to_one), 2, "tdiv-sdiv"),
    ],
)
def test_a_method_has_a_perturbation_of_its_own(
    method: str | Method, count: int, expected: str, tmp_path: Path
) -> None:
    """Said or not, the run is the same, and its folder tells which one it was."""
    theirs, own, train = [net() for _ in range(count)] or None, net(), data(50)
    given: dict[str, Any] = {"method": method, "epochs": 2, "batch_size": 16}
    unsaid = distill(theirs, own, train, **given, out=tmp_path / "unsaid")
    said = distill(theirs, own, train, **given, perturbation=expected, out=tmp_path / "said")
    assert same(said.model, unsaid.model)
    for name in ("said", "unsaid"):
        assert RunFolder(tmp_path / name).about["perturbation"] == expected
    assert distill(theirs, own, train, **given, out=tmp_path / "said").folder == tmp_path / "said"
