"""Fingerprints: the same in every process, and another one with whatever changes the behaviour."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    LambdaLR,
    LRScheduler,
    OneCycleLR,
    ReduceLROnPlateau,
    SequentialLR,
)

from onefold.engine.keeping.fingerprint import described, of_function, of_network, of_schedule
from onefold.objectives import kd

SCRIPT = """
import torch
import torch.nn.functional as F
WEIGHTS = torch.tensor([1.0, 2.0])
NAMES = {"b", "a", "c"}
def helper(x, power=2):
    return x ** power
def objective(student, teachers, labels, scale=1.0):
    '''Says what it does.'''
    return scale * F.cross_entropy(helper(student[0]), labels, weight=WEIGHTS) + len(NAMES)
"""


def defined(script: str) -> Callable[..., Any]:
    module: dict[str, Any] = {"__name__": "script"}
    exec(compile(script, "script.py", "exec"), module)
    found: Callable[..., Any] = module["objective"]
    return found


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("[1.0, 2.0]", "[1.0, 3.0]"),  # a global
        ("power=2", "power=3"),  # a default of a function that it calls
        ("x ** power", "x * power"),  # the code of that function
        ("scale=1.0", "scale=2.0"),
        ("scale * F", "2 * scale * F"),
        ("F.cross_entropy", "F.multi_margin_loss"),
        ('"c"}', '"d"}'),
    ],
)
def test_a_function_is_another_one_when_its_code_or_a_value_changes(before: str, after: str) -> None:
    assert before in SCRIPT
    assert of_function(defined(SCRIPT)) != of_function(defined(SCRIPT.replace(before, after)))


@pytest.mark.parametrize(
    ("before", "after"),
    [("'''Says what it does.'''", "'''Says it better.'''"), ("def helper", "# More.\n\ndef helper")],
)
def test_words_and_lines_are_not_behaviour(before: str, after: str) -> None:
    assert of_function(defined(SCRIPT)) == of_function(defined(SCRIPT.replace(before, after)))


def test_a_function_is_the_same_in_another_process(tmp_path: Path) -> None:
    script = SCRIPT + "\nfrom onefold.engine.keeping.fingerprint import of_function\nprint(of_function(objective))\n"
    (tmp_path / "script.py").write_text(script)
    found = {
        subprocess.run(
            [sys.executable, tmp_path / "script.py"],
            env=os.environ | {"PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in (1, 2)
    }
    assert len(found) == 1


def weighted(weight: object) -> Callable[[Tensor], Tensor]:
    return lambda x: F.relu(x) * weight  # type: ignore[operator]


class Loss:
    def __init__(self, weight: float) -> None:
        self.weight = weight

    def __call__(self, x: Tensor) -> Tensor:
        return self.weight * x.sum()

    def method(self, x: Tensor) -> Tensor:
        return self(x)


@pytest.mark.parametrize(
    ("one", "same", "other"),
    [
        (weighted(1.0), weighted(1.0), weighted(2.0)),
        (weighted(torch.ones(3)), weighted(torch.ones(3)), weighted(torch.zeros(3))),
        (weighted(np.ones(3)), weighted(np.ones(3)), weighted(np.ones(3, dtype=np.float32))),
        (
            functools.partial(kd, temperature=2.0),
            functools.partial(kd, temperature=2.0),
            functools.partial(kd, temperature=3.0),
        ),
        (Loss(1.0), Loss(1.0), Loss(2.0)),
        (Loss(1.0).method, Loss(1.0).method, Loss(2.0).method),
        (weighted(list(range(1000))), weighted(list(range(1000))), weighted(list(range(1001)))),
        (F.relu, F.relu, F.gelu),
        (torch.relu, torch.relu, torch.tanh),
        (nn.CrossEntropyLoss(label_smoothing=0.1), nn.CrossEntropyLoss(label_smoothing=0.1), nn.CrossEntropyLoss()),
    ],
)
def test_values_that_a_function_holds_belong_to_it(one: object, same: object, other: object) -> None:
    assert of_function(one) == of_function(same)
    assert of_function(one) != of_function(other)


def test_what_refers_to_itself_ends() -> None:
    cycle: dict[str, Any] = {}
    cycle["itself"] = cycle
    holder = types.SimpleNamespace()
    holder.itself = holder
    assert described(cycle)
    assert described(holder) == described(holder)

    def recursive(n: int) -> int:
        return recursive(n - 1) if n else 0

    assert of_function(recursive) == of_function(recursive)


def test_a_network_is_its_layers_and_their_settings() -> None:
    def net(act: type[nn.Module] = nn.ReLU, p: float = 0.5, width: int = 8) -> nn.Module:
        return nn.Sequential(nn.Linear(4, width), act(), nn.Dropout(p), nn.Linear(width, 3))

    assert of_network(net()) == of_network(net())  # whatever their weights
    assert len({of_network(n) for n in (net(), net(nn.GELU), net(p=0.1), net(width=9))}) == 4


def test_a_network_that_shows_where_its_objects_lie_is_the_same_network() -> None:
    class Lambda(nn.Module):
        def __init__(self, function: Callable[[int], int]) -> None:
            super().__init__()
            self.function = function

        def extra_repr(self) -> str:
            return f"{self.function}, times 0x10"

    def function() -> Callable[[int], int]:
        return lambda k: k

    one, other = Lambda(function()), Lambda(function())
    assert one.extra_repr() != other.extra_repr()
    assert of_network(one) == of_network(other)


@pytest.mark.parametrize(
    "make",
    [
        lambda o: CosineAnnealingLR(o, 5),
        lambda o: OneCycleLR(o, 0.1, total_steps=9),
        lambda o: SequentialLR(o, [CosineAnnealingLR(o, 5), LambdaLR(o, lambda k: 0.9**k)], [5]),
        lambda o: ReduceLROnPlateau(o),
    ],
)
def test_a_scheduler_is_the_same_where_rates_are_tensors(make: Callable[[SGD], LRScheduler]) -> None:
    """As on a GPU: a run that was begun there goes on without one."""
    weights = [torch.rand(3, requires_grad=True)]
    assert of_schedule(make(SGD(weights, lr=torch.tensor(0.1)))) == of_schedule(make(SGD(weights, lr=0.1)))


def test_a_scheduler_with_another_rate_is_another() -> None:
    weights = [torch.rand(3, requires_grad=True)]
    one, other = (of_schedule(CosineAnnealingLR(SGD(weights, lr=lr), 5)) for lr in (0.1, 0.101))
    assert one != other


def test_a_scheduler_is_its_class_and_settings() -> None:
    def made(make: Callable[[SGD], LRScheduler]) -> str:
        return of_schedule(make(SGD([torch.rand(3, requires_grad=True)], lr=0.1)))

    def sequence(steps: int) -> Callable[[SGD], LRScheduler]:
        return lambda o: SequentialLR(o, [CosineAnnealingLR(o, 5), CosineAnnealingLR(o, steps)], [5])

    assert made(lambda o: CosineAnnealingLR(o, 30)) == made(lambda o: CosineAnnealingLR(o, 30))
    assert made(lambda o: CosineAnnealingLR(o, 30)) != made(lambda o: CosineAnnealingLR(o, 31))
    assert made(lambda o: LambdaLR(o, lambda k: 0.9**k)) != made(lambda o: LambdaLR(o, lambda k: 0.8**k))
    assert made(sequence(6)) == made(sequence(6))
    assert made(sequence(6)) != made(sequence(7))
