"""What is tried of a job's step before its memory format is chosen."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from onefold import Teachers
from onefold.engine import Job
from onefold.engine.choose_layout import layout_of_job
from onefold.engine.layout import INNERMOST, OUTERMOST
from onefold.ensemble import Plain
from onefold.methods import METHODS, PERTURBATIONS, AnyStudent, Perturbing

X, LABELS = torch.rand(8, 2, 4, 4, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 3


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.other, self.head = nn.Conv2d(2, 3, 1), nn.Conv2d(3, 3, 3, padding=1), nn.Linear(48, 3)

    def between(self, h: Tensor) -> Tensor:
        return h

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.head(self.other(self.between(self.one(x))).flatten(1)))


class Two:
    """A world in which the other process finds what this one finds."""

    size, rank, part = 2, 0, None

    def collected(self, value: Any) -> list[Any]:
        return [value, value]


class Views(SGD):
    """Looks at gradients as matrices."""

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for p in group["params"]:
                p.grad.view(len(p), -1)
        return super().step(closure)


def chosen(job: Job, told: list[str], net: nn.Module | None = None, *, lossless: bool = False) -> torch.memory_format:
    def loss_for(student: AnyStudent, layout: torch.memory_format) -> Callable[[Tensor, Tensor], Tensor]:
        assert not lossless, "a loss may need all processes"
        innermost = layout is INNERMOST
        return lambda x, y: F.cross_entropy(student(x.contiguous(memory_format=layout) if innermost else x)[0], y)

    student = Plain(net or Net())
    return layout_of_job(dataclasses.replace(job, say=told.append), student, loss_for, X, LABELS)


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize(
    ("optimizer", "layout"),
    [(None, INNERMOST), (lambda groups: AdamW(groups, lr=1e-3), INNERMOST), (lambda groups: Views(groups), OUTERMOST)],
)
def test_optimizers(
    alone: bool, optimizer: Callable[[Any], Optimizer] | None, layout: torch.memory_format, make_job: Any
) -> None:
    """With several processes no loss and no step of an unknown optimizer is tried, which might need all of them."""
    told: list[str] = []
    world = {} if alone else {"world": Two()}
    job = make_job("supervised", "none", optimizer=optimizer, unsaid=("lr", "weight_decay"), **world)
    assert chosen(job, told, lossless=not alone) is layout
    assert len(told) == (layout is OUTERMOST)
    assert all(sentence.startswith("a step cannot use the channels-last memory format") for sentence in told)
    assert alone or not told or "a step of Views cannot be tried" in told[0]


def test_no_layout_without_the_fast_path(make_job: Any) -> None:
    assert chosen(make_job("supervised", "none", fast=False), [], lossless=True) is OUTERMOST


class Numpy(nn.Module):
    """A teacher without a gradient, as many are that were exported."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(32, 3))

    def forward(self, x: Tensor) -> Tensor:
        return torch.from_numpy(x.numpy().reshape(len(x), -1) @ self.weight.detach().numpy())


class Fails(Net):
    """A teacher whose backward pass fails in channels-last."""

    class Looks(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:  # noqa: ARG004
            return x.clone()

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor) -> Tensor:  # noqa: ARG004
            return gradients[0].view(len(gradients[0]), -1).view(gradients[0].shape)

    def between(self, h: Tensor) -> Tensor:
        return torch.as_tensor(self.Looks.apply(h))


OWN = Perturbing("own", lambda x, teachers, student: x)  # noqa: ARG005


@pytest.mark.parametrize(
    ("teacher", "perturbation", "layout"),
    [
        (Numpy, PERTURBATIONS["none"], INNERMOST),
        (Numpy, PERTURBATIONS["gaussian"], INNERMOST),
        (Numpy, OWN, INNERMOST),
        (Fails, PERTURBATIONS["none"], INNERMOST),
        (Fails, PERTURBATIONS["tdiv"], OUTERMOST),
        (Fails, OWN, OUTERMOST),
    ],
)
def test_a_teachers_gradient_matters_where_a_perturbation_may_follow_it(
    teacher: Callable[[], nn.Module], perturbation: Perturbing, layout: torch.memory_format, make_job: Any
) -> None:
    told: list[str] = []
    teachers = Teachers([teacher(), teacher()])
    job = dataclasses.replace(make_job("kd", "none"), teachers=teachers, perturbation=perturbation)
    assert job.method is METHODS["kd"]
    assert chosen(job, told) is layout
    assert len(told) == (layout is OUTERMOST)


@pytest.mark.parametrize(("batch_size", "accumulate", "few"), [(1, 1, 1), (6, 2, 3), (100, 1, 8)])
def test_graphs_are_kept_for_no_more_examples_than_a_step_has(
    batch_size: int, accumulate: int, few: int, make_job: Any
) -> None:
    sizes: list[int] = []

    class Counts(Net):
        def forward(self, x: Tensor) -> Tensor:
            if torch.is_grad_enabled():
                sizes.append(len(x))
            return super().forward(x)

    job = make_job("kd", "tdiv", batch_size=batch_size, accumulate=accumulate)
    job = dataclasses.replace(job, teachers=Teachers([Counts(), Counts()]))
    assert chosen(job, [], Counts()) is INNERMOST
    assert set(sizes) == {few}
