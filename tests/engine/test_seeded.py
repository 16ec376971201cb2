"""What a network of the user's own draws when it is made comes from the seed, whoever draws it."""

from __future__ import annotations

import contextlib
import dataclasses
import random
from pathlib import Path

import numpy as np
import torch

from onefold.data import Arrays, Source, from_arrays
from onefold.engine.device import seeded
from onefold.engine.from_recipe import network_for
from onefold.recipe import Recipe

NET = """
import random
import numpy as np
import torch
from torch import nn

def net(classes):
    layer = nn.Linear(4, classes)
    layer.weight.data = torch.from_numpy(np.random.randn(classes, 4)).float()
    layer.bias.data.fill_(random.random())
    return layer
"""
CPU = torch.device("cpu")


def source() -> Source:
    part = Arrays(torch.rand(6, 4), torch.arange(6) % 3)
    return from_arrays("table", part, part, part, ("a", "b", "c"))


def test_numpy_and_python_are_seeded_for_a_network(tmp_path: Path) -> None:
    (tmp_path / "mynet.py").write_text(NET)
    recipe = dataclasses.replace(Recipe("mine"), network=f"{tmp_path}/mynet.py:net")
    one, again, other = (network_for(recipe, source(), seed, CPU).state_dict() for seed in (0, 0, 1))
    for name in ("weight", "bias"):
        assert torch.equal(one[name], again[name])
        assert not torch.equal(one[name], other[name])


def test_random_numbers_stand_as_before() -> None:
    def drawn() -> tuple[float, float, float]:
        return random.random(), float(np.random.rand()), float(torch.rand(()))  # noqa: NPY002

    def begin() -> None:
        random.seed(3)
        np.random.seed(3)  # noqa: NPY002
        torch.manual_seed(3)

    begin()
    expected = drawn()
    begin()
    with contextlib.suppress(KeyError), seeded(CPU, 2**40):
        drawn()
        raise KeyError
    assert drawn() == expected
