from __future__ import annotations

import dataclasses
import importlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from onefold.engine import distill_run, train_teachers
from onefold.engine.measure import corruption
from onefold.recipe import DistillRecipe, Recipe
from onefold.recipes import recipe_named

Copied = Callable[[str], Path]


def tiny(method: str = "latentbe", perturbation: str = "tdiv-sdiv") -> Recipe:
    """Two epochs of the smallest WideResNet on the digits, three teachers."""
    recipe = recipe_named("digits")
    optim = dataclasses.replace(recipe.optim, warmup_epochs=0, batch_size=25)
    distill = DistillRecipe(method=method, perturbation=perturbation)
    return dataclasses.replace(recipe, members=3, epochs=2, eval_every=1, optim=optim, distill=distill)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders: teachers, latentbe, be, kd. They are copied before anything is measured of them."""
    folder = tmp_path_factory.mktemp("runs")
    train_teachers(tiny(), folder / "teachers")
    for method in ("latentbe", "be", "kd"):
        distill_run(tiny(method, "none"), folder / method, folder / "teachers")
    return folder


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Copied:
    def copied(name: str) -> Path:
        shutil.copytree(trained / name, tmp_path / name)
        return tmp_path / name

    return copied


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Two corruptions at two severities."""
    package = importlib.import_module("onefold.data.corrupt")  # onefold.data has a function of that name
    monkeypatch.setattr(package, "CORRUPTIONS", ("contrast", "shot_noise"))
    monkeypatch.setattr(package, "EXTRA", ())
    monkeypatch.setattr(corruption, "SEVERITIES", (2, 5))
    return [("contrast", 2), ("contrast", 5), ("shot_noise", 2), ("shot_noise", 5)]
