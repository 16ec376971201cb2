"""Examples of a recipe's shape."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from onefold.bench.stand_in import BATCHES, SHAPES, examples_for
from onefold.data import Arrays, CropFlip
from onefold.recipe import Recipe
from onefold.recipes import recipe_named


def recipe_at(name: str, root: Path, source: str | None = None) -> Recipe:
    recipe = recipe_named(name)
    return replace(recipe, data=replace(recipe.data, root=str(root), source=source or recipe.data.source))


def test_data_that_are_there_are_used(tmp_path: Path) -> None:
    examples = examples_for(recipe_at("digits", tmp_path))
    assert examples.source.name == "digits"
    assert examples.counts == {"train": 400, "val": 200, "test": 1197}
    assert not examples.note
    assert examples.loading > 0


def test_missing_data_have_a_stand_in(tmp_path: Path) -> None:
    examples = examples_for(recipe_at("cifar10", tmp_path))
    train = examples.source.train
    assert examples.counts == {"train": 45_000, "val": 5_000, "test": 10_000}
    assert isinstance(train, Arrays)
    assert tuple(train.x.shape) == (45_000, 3, 32, 32)
    assert sorted(train.y.unique().tolist()) == list(range(10))
    assert examples.source.augment == CropFlip(4)
    assert "not found" in examples.note
    assert not list(tmp_path.iterdir()), "nothing is fetched"


def test_of_what_is_read_from_files_a_few_stand_for_all(tmp_path: Path) -> None:
    recipe = recipe_at("imagenet", tmp_path)
    recipe = replace(recipe, optim=replace(recipe.optim, batch_size=4))
    examples = examples_for(recipe)
    assert examples.counts["train"] == SHAPES["imagenet"].train
    assert isinstance(examples.source.train, Arrays)
    assert tuple(examples.source.train.x.shape) == (BATCHES * 4, 3, 224, 224)
    assert len(examples.source.classes) == 1000
    assert "decoding" in examples.note


def test_what_is_not_known_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="did you mean cifar10"):
        examples_for(recipe_at("cifar10", tmp_path, "cifra10"))
    with pytest.raises(ValueError, match="nowhere"):
        examples_for(recipe_at("cifar10", tmp_path, f"folder:{tmp_path}/nowhere"))
    with pytest.raises(ValueError, match="--synthetic: expected one of cifar10"):
        examples_for(recipe_at("digits", tmp_path), synthetic=True)
