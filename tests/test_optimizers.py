"""An optimizer of the user's own trains with the rates that it was made with, unless `distill` is told others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR

import onefold
from onefold.run import RunFolder

Rates = list[tuple[float, float]]


def net() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3))


def data(count: int) -> tuple[Tensor, Tensor]:
    return torch.rand(count, 1, 4, 4), torch.arange(count) % 3


def constant(optimizer: Optimizer) -> LambdaLR:
    return LambdaLR(optimizer, lambda _: 1.0)


def trained(optimizer: Any, **given: Any) -> Rates:
    """Rate and decay of each group that a training ends with: of the weights, and of the factors of two members."""
    made: list[Optimizer] = []

    def factory(groups: list[dict[str, Any]]) -> Optimizer:
        made.append(optimizer(groups))
        return made[-1]

    torch.manual_seed(0)
    teachers = [net(), net()]
    onefold.distill(teachers, net(), data(48), epochs=1, optimizer=factory, scheduler=constant, workers=0, **given)
    return [(group["lr"], group["weight_decay"]) for group in made[-1].param_groups]


@pytest.mark.parametrize(
    ("optimizer", "given", "expected"),
    [
        (lambda g: AdamW(g, lr=3e-4), {}, [(3e-4, 0.01), (3e-4, 0.01)]),
        (lambda g: AdamW(g, weight_decay=0.1), {}, [(1e-3, 0.1), (1e-3, 0.1)]),
        (AdamW, {"lr": 0.02, "weight_decay": 0.0}, [(0.02, 0.0), (0.02, 0.0)]),
        (lambda g: AdamW(g, lr=0.02), {"lr": 0.02}, [(0.02, 0.01), (0.02, 0.01)]),
        (lambda g: AdamW(g, lr=torch.tensor(0.25)), {}, [(0.25, 0.01), (0.25, 0.01)]),
        (lambda g: AdamW(g, weight_decay=0.0), {}, [(1e-3, 0.0), (1e-3, 0.0)]),  # asked for: it has a decay by itself
        (lambda g: AdamW(g, lr=torch.tensor(0.01)), {"lr": 0.01}, [(0.01, 0.01), (0.01, 0.01)]),
        (lambda g: SGD(g, lr=0.25), {}, [(0.25, 5e-4), (0.5, 2.5e-4)]),
        (lambda g: SGD(g, lr=0.25, weight_decay=0.5), {}, [(0.25, 0.5), (0.5, 0.25)]),
        (lambda g: SGD([{**group, "lr": 0.125} for group in g]), {}, [(0.125, 5e-4), (0.125, 2.5e-4)]),
        (lambda g: AdamW(g, lr=0.25), {"method": "kd", "perturbation": "none"}, [(0.25, 0.01)]),
    ],
)
def test_rates_are_those_that_were_asked_for(optimizer: Any, given: dict[str, Any], expected: Rates) -> None:
    assert trained(optimizer, **given) == expected


@pytest.mark.parametrize("name", ["lr", "weight_decay"])
def test_two_different_rates_are_refused(name: str) -> None:
    rate: dict[str, Any] = {name: 0.25}
    with pytest.raises(
        ValueError, match=f"optimizer: expected one {name}, got {name}=0.25 .* and {name}=0.5 as an argument"
    ):
        trained(lambda g: AdamW(g, **rate), **{name: 0.5})


def test_a_class_that_leaves_its_rates_to_another_one_is_looked_through() -> None:
    class Mine(AdamW):
        def __init__(self, params: Any, **rest: Any) -> None:
            super().__init__(params, **rest)

    assert trained(Mine, weight_decay=0.5) == [(1e-3, 0.5), (1e-3, 0.5)]
    with pytest.raises(ValueError, match=r"got weight_decay=0\.25 .* and weight_decay=0\.5 as an argument"):
        trained(lambda g: Mine(g, weight_decay=0.25), weight_decay=0.5)


def test_a_folder_tells_what_was_trained_with_and_keeps_to_it(tmp_path: Path) -> None:
    trained(lambda g: AdamW(g, lr=0.25), out=tmp_path)
    run = RunFolder(tmp_path)
    assert run.recipe["optim"]["lr"] is None
    assert run.about["optimizer"]["groups"][0]["lr"] == "0.25"
    with pytest.raises(ValueError, match=r"run\.optimizer\.groups"):
        trained(lambda g: AdamW(g, lr=0.5), out=tmp_path)
