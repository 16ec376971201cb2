from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from onefold.engine import distill_run, train_teachers
from onefold.recipe import DistillRecipe, Recipe
from onefold.recipes import recipe_named

Copied = Callable[[str], Path]


def tiny(method: str, network: str = "mlp") -> Recipe:
    """Two epochs on the digits, two teachers."""
    recipe = recipe_named("digits")
    optim = dataclasses.replace(recipe.optim, warmup_epochs=0, batch_size=50)
    distill = DistillRecipe(method=method, perturbation="none")
    return dataclasses.replace(recipe, network=network, members=2, epochs=2, optim=optim, distill=distill)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders: teachers, and a student of each kind; conv, a convolutional network."""
    folder = tmp_path_factory.mktemp("runs")
    train_teachers(tiny("kd"), folder / "teachers")
    for method in ("kd", "proxy-end2", "be", "latentbe"):
        distill_run(tiny(method), folder / method, folder / "teachers")
    distill_run(tiny("latentbe", "wrn10x1"), folder / "conv", folder / "teachers")
    return folder


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Copied:
    def copied(name: str) -> Path:
        shutil.copytree(trained / name, tmp_path / name)
        return tmp_path / name

    return copied
