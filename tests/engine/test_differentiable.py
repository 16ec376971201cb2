"""Teachers without a gradient to their inputs are told before training, and those whose gradient is zero are not."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import onefold
from onefold.engine.differentiable import check_differentiable
from onefold.engine.distributed.spread import SpreadTeachers
from onefold.methods import PERTURBATIONS


def net(bias: float = 0.0) -> nn.Sequential:
    made = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3))
    nn.init.constant_(made[1].bias, bias)  # type: ignore[arg-type]
    return made


class Around(nn.Module):
    """A network, and how it is asked."""

    def __init__(self, ask: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.net, self.ask = net(), ask

    def forward(self, x: Tensor) -> Tensor:
        return self.ask(self.net, x)


def without_grad(net: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        answer: Tensor = net(x)
    return answer


def in_numpy(net: nn.Module, x: Tensor) -> Tensor:
    answer: Tensor = net(torch.from_numpy(x.detach().numpy() * 2))
    return answer


def in_numpy_without_detaching(net: nn.Module, x: Tensor) -> Tensor:
    answer: Tensor = net(torch.from_numpy(x.numpy() * 2))
    return answer


def rounded(net: nn.Module, x: Tensor) -> Tensor:
    """With a gradient that is zero everywhere."""
    answer: Tensor = net((8 * x).round())
    return answer


def distilled(teachers: list[nn.Module], perturbation: str) -> Any:
    torch.manual_seed(0)
    data = torch.rand(24, 1, 4, 4), torch.arange(24) % 3
    given: dict[str, Any] = {"epochs": 1, "batch_size": 12, "workers": 0, "progress": False, "device": "cpu"}
    return onefold.distill(teachers, net(), data, perturbation=perturbation, **given)


@pytest.mark.parametrize("perturbation", ["ods", "confods", "tdiv", "tdiv-sdiv"])
def test_a_teacher_that_cannot_be_followed_is_named(perturbation: str) -> None:
    asked = {
        without_grad: "does not have it",
        in_numpy: "does not have it",
        in_numpy_without_detaching: "cannot compute it: .*",
    }
    for ask, told in asked.items():
        with pytest.raises(
            ValueError,
            match=rf"^teachers: '{perturbation}' needs the gradient .*teacher 1 \(Around\) {told}; use .* 'gaussian'",
        ):
            distilled([net(), Around(ask)], perturbation)


@pytest.mark.parametrize("perturbation", ["none", "gaussian"])
def test_who_follows_no_gradient_does_not_need_one(perturbation: str) -> None:
    assert distilled([Around(without_grad), Around(in_numpy)], perturbation).model is not None


def test_a_gradient_of_zero_is_one() -> None:
    dead = net(-100.0)  # no unit of it ever answers
    assert distilled([dead, net()], "tdiv-sdiv").model is not None
    assert distilled([Around(rounded), Around(rounded)], "tdiv").model is not None


def test_every_process_hears_of_teachers_that_another_one_holds() -> None:
    def job(other: list[str], *own: nn.Module) -> Any:
        world: Any = SimpleNamespace(rank=1, size=2, collected=lambda found: [other, found])
        spread = SpreadTeachers(own, 4, world)
        return SimpleNamespace(teachers=spread, world=world, perturbation=PERTURBATIONS["tdiv"])

    x = torch.rand(2, 1, 4, 4)
    check_differentiable(job([], net(), net()), x)
    with pytest.raises(ValueError, match=r"but teacher 0 \(Far\) does not have it"):
        check_differentiable(job(["teacher 0 (Far) does not have it"], net(), net()), x)
    with pytest.raises(ValueError, match=r"but teacher 3 \(Around\) does not have it"):
        check_differentiable(job([], net(), Around(without_grad)), x)
