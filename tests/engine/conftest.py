from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from onefold import Teachers
from onefold.data import Arrays
from onefold.engine import Job, Settings
from onefold.methods import method_named, perturbation_named
from onefold.recipe import OptimRecipe

MakeJob = Callable[..., Job]


class Small(nn.Module):
    """Two convolutions, BatchNorm and a linear layer: images `[B, 1, 4, 4]` in [0, 1] to three classes."""

    def __init__(self, classes: int = 3, width: int = 4) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, width, 3, padding=1, bias=False)
        self.again = nn.Conv2d(width, width, 2, bias=False)  # of several channels, which lie in memory in two ways
        self.norm = nn.BatchNorm2d(width)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.head(self.norm(self.again(self.conv(x).relu())).relu().mean((2, 3)))
        return answer


class Teller:
    """Notes what it is told, and does something once a step is reached."""

    def __init__(self, at: int = -1, do: Any = None) -> None:
        self.updates: list[tuple[int, int, float, float, float]] = []
        self.messages: list[str] = []
        self.at, self.do = at, do

    def update(self, done: int, total: int, loss: float, lr: float, rate: float) -> None:
        self.updates.append((done, total, loss, lr, rate))
        if done == self.at:
            self.do()

    def message(self, text: str) -> None:
        self.messages.append(text)


def images(count: int, seed: int) -> Arrays:
    """Random images whose label is where they are brightest: above, below or nowhere in particular."""
    draws = torch.Generator().manual_seed(seed)
    y = torch.randint(3, (count,), generator=draws)
    x = torch.rand(count, 1, 4, 4, generator=draws)
    x[y == 0, :, :2] *= 0.3
    x[y == 1, :, 2:] *= 0.3
    return Arrays((255 * x).to(torch.uint8), y)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture
def small() -> type[Small]:
    return Small


@pytest.fixture
def make_teller() -> type[Teller]:
    return Teller


@pytest.fixture
def make_job() -> MakeJob:
    """A job of two epochs of four steps; any field of the job, its settings or its optimizer may be given."""

    def make(method: str = "latentbe", perturbation: str = "tdiv-sdiv", **given: Any) -> Job:
        optim: dict[str, Any] = {"batch_size": 16, "warmup_epochs": 0.5, "lr": 0.05}
        settings: dict[str, Any] = {"epochs": 2}
        names = {f.name for f in dataclasses.fields(OptimRecipe)}, {f.name for f in dataclasses.fields(Settings)}
        for name in list(given):
            if name in names[0]:
                optim[name] = given.pop(name)
            elif name in names[1]:
                settings[name] = given.pop(name)
        torch.manual_seed(1)
        teachers = Teachers([Small(), Small(width=6)])
        fields: dict[str, Any] = {
            "method": method_named(method),
            "perturbation": perturbation_named(perturbation),
            "net": Small(),
            "teachers": teachers if method_named(method).needs_teachers else None,
            "train": images(60, 0),
            "val": images(30, 1),
            "test": images(40, 2),
            "device": torch.device("cpu"),
        }
        return Job(**(fields | {"settings": Settings(optim=OptimRecipe(**optim), **settings)} | given))

    return make
