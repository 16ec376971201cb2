"""A run folder knows the space its inputs were perturbed in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import onefold
from onefold.perturb import InputSpace
from onefold.run import RunFolder

FEATURES = 3000  # more than torch prints


def run(out: Path, space: InputSpace) -> None:
    """The same call each time, but for the space."""
    torch.manual_seed(0)
    networks = [nn.Linear(FEATURES, 3) for _ in range(3)]
    x, y = torch.rand(12, FEATURES), torch.arange(12) % 3
    given: dict[str, Any] = {"epochs": 1, "batch_size": 12, "workers": 0, "device": "cpu"}
    onefold.distill(networks[:2], networks[2], (x, y), out=out, space=space, **given)


def unclipped(scale: float | Tensor) -> InputSpace:
    return InputSpace(scale, low=None, high=None)


def test_a_run_goes_on_in_the_same_space_alone(tmp_path: Path) -> None:
    scale = torch.linspace(0.01, 0.02, FEATURES)
    run(tmp_path, unclipped(scale))
    run(tmp_path, unclipped(scale.clone()))
    changed = scale.clone()
    changed[FEATURES // 2] = torch.nextafter(changed[FEATURES // 2], torch.tensor(1.0))
    for other in (unclipped(changed), unclipped(scale.double()), unclipped(0.01), InputSpace(scale, None, 1.0)):
        with pytest.raises(ValueError, match="space: 'InputSpace"):
            run(tmp_path, other)


def test_plain_numbers_are_recorded_as_they_always_were(tmp_path: Path) -> None:
    """So that folders that were begun before go on."""
    for name, space, recorded in (
        ("pixels", InputSpace(), "InputSpace(scale=0.00392156862745098, low=0.0, high=1.0)"),
        ("numbers", unclipped(0.1), "InputSpace(scale=0.1, low=None, high=None)"),
    ):
        run(tmp_path / name, space)
        assert RunFolder(tmp_path / name).recipe["space"] == recorded
