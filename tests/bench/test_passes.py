"""Passes of a step, against what the engine's own steps do."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from onefold.data import Arrays
from onefold.engine.cost.counting import Counter, count_forward
from onefold.engine.cost.passes import passes_of, served_members
from onefold.engine.settings import Settings
from onefold.engine.training import Job, prepare
from onefold.ensemble import Teachers
from onefold.methods import METHODS, PERTURBATIONS, method_named, perturbation_named
from onefold.names import check_pair
from onefold.recipe import OptimRecipe


def told(method: str, perturbation: str, members: int = 4) -> str:
    return str(passes_of(method_named(method), perturbation_named(perturbation), members))


def equivalents(method: str, perturbation: str, members: int = 4) -> int:
    return passes_of(method_named(method), perturbation_named(perturbation), members).equivalents


def test_in_words() -> None:
    assert told("supervised", "none") == "1 forward and 1 backward pass"
    assert told("kd", "none") == "teachers 4 forward; student 1 forward and 1 backward passes"
    assert told("kd", "ods") == "teachers 5 forward and 1 backward; student 1 forward and 1 backward passes"
    assert told("latentbe", "none", 2) == "teachers 2 forward; student 2 forward and 2 backward passes"
    assert told("latentbe", "tdiv-sdiv") == (
        "teachers 6 forward and 1 backward; student 6 forward and 5 backward passes"
    )


def test_in_forward_passes() -> None:
    assert equivalents("supervised", "none") == 3
    assert equivalents("kd", "none") == 4 + 3
    assert equivalents("kd", "tdiv") == 4 + 3 + 3
    assert equivalents("latentbe", "none") == 16
    assert equivalents("latentbe", "ods") == 18
    assert equivalents("latentbe", "tdiv-sdiv") == 22


def possible() -> list[tuple[str, str]]:
    found = []
    for method in METHODS.values():
        for perturbation in PERTURBATIONS.values():
            try:
                check_pair(method, perturbation, 3)
            except ValueError:
                continue
            found.append((method.name, perturbation.name))
    return found


def small() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 16, 5)
    )


@pytest.mark.parametrize(("method", "perturbation"), possible())
def test_a_real_step_does_so_much_arithmetic(method: str, perturbation: str) -> None:
    """All passes cost the same, but for the gradient of the input, which training does not want."""
    members, batch = 3, 6
    torch.manual_seed(0)
    kind = method_named(method)
    x = torch.rand(batch, 3, 6, 6)
    job = Job(
        method=kind,
        perturbation=perturbation_named(perturbation),
        net=small(),
        teachers=Teachers([small() for _ in range(members)]) if kind.needs_teachers else None,
        train=Arrays(x, torch.arange(batch) % 5),
        val=None,
        test=None,
        settings=Settings(1, optim=OptimRecipe(batch_size=batch, warmup_epochs=0)),
        device=torch.device("cpu"),
    )
    training = prepare(job)
    training.student.train()
    with Counter() as counter:
        training.step(x, torch.arange(batch) % 5)
    forward = count_forward(small(), x.shape)
    first = forward.operations[0].flops
    expected = equivalents(method, perturbation, members) * forward.flops - training.student.members * first
    assert sum(op.flops for op in counter.operations) == expected


def test_what_is_served() -> None:
    assert {name: served_members(method, 3) for name, method in METHODS.items()} == {
        "supervised": 1,
        "kd": 1,
        "aekd": 1,
        "proxy-end2": 1,
        "be": 3,
        "latentbe": 1,
    }
