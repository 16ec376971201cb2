"""Recipes against the settings in the paper's appendix, written here a second time."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from onefold.recipe import OptimRecipe, Recipe, evaluated, from_dict, to_dict
from onefold.recipes import RECIPES, recipe_named

# name: data, network, teachers, epochs, batch size, learning rate, weight decay, alpha, tau
PAPER = {
    "cifar10": ("cifar10", "wrn28x1", 4, 200, 128, 0.1, 0.0005, 1.0, 4.0),
    "cifar100": ("cifar100", "wrn28x4", 4, 200, 128, 0.1, 0.0005, 1.0, 4.0),
    "tiny-imagenet-r18": ("tiny-imagenet", "resnet18-small", 4, 80, 128, 0.1, 0.0005, 0.9, 20.0),
    "tiny-imagenet-wrn": ("tiny-imagenet", "wrn28x4", 4, 80, 128, 0.1, 0.0005, 0.9, 20.0),
    "imagenet": ("imagenet", "resnet50", 2, 100, 256, 0.1, 0.0001, 1.0, 1.0),
}


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_numbers(name: str) -> None:
    recipe = recipe_named(name)
    assert recipe.name == name
    optim, distill = recipe.optim, recipe.distill
    ours = (recipe.data.source, recipe.network, recipe.members, recipe.epochs, optim.batch_size, optim.lr)
    assert (*ours, optim.weight_decay, distill.alpha, distill.temperature) == PAPER[name]


@pytest.mark.parametrize("name", PAPER)
def test_what_all_of_the_papers_settings_share(name: str) -> None:
    recipe = recipe_named(name)
    optim = recipe.optim
    assert (optim.momentum, optim.warmup_epochs, optim.warmup_start) == (0.9, 5, 0.01)
    assert (recipe.distill.method, recipe.distill.perturbation) == ("latentbe", "tdiv-sdiv")
    assert recipe.distill.cap == 0.6
    assert recipe.data.augment
    assert not optim.drop_last  # 45,000 images in batches of 128 are 352 steps
    assert (optim.clip, optim.accumulate, optim.label_smoothing, optim.ema) == (None, 1, 0.0, None)


@pytest.mark.parametrize("name", PAPER)
def test_which_epochs_may_be_served(name: str) -> None:
    recipe = recipe_named(name)
    tenth, total = recipe.epochs // 10, recipe.epochs
    found = [e for e in range(1, total + 1) if evaluated(e, total, recipe.eval_every, recipe.eval_last)]
    assert found == [*range(tenth, total - tenth, tenth), *range(total - tenth, total + 1)]


def test_the_last_epoch_is_always_evaluated() -> None:
    assert [e for e in range(1, 8) if evaluated(e, 7, 3, 1)] == [3, 6, 7]
    assert [e for e in range(1, 8) if evaluated(e, 7, 7, 3)] == [5, 6, 7]
    assert [e for e in range(1, 8) if evaluated(e, 7, 20, 20)] == list(range(1, 8))


def test_every_recipe_is_known_here() -> None:
    assert set(RECIPES) == {*PAPER, "digits"}


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_complete_frozen_and_survives_its_folder(name: str) -> None:
    recipe = recipe_named(name)
    assert recipe == recipe_named(name)
    assert from_dict(to_dict(recipe)) == recipe
    assert not recipe.data.download
    with pytest.raises(dataclasses.FrozenInstanceError):
        recipe.epochs = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"name": None}, "name: expected text, got null"),
        ({"members": 4.0}, "members: expected a whole number, got 4.0"),
        ({"members": True}, "members: expected a whole number, got true"),
        ({"fast": 1}, "fast: expected true or false, got 1"),
        ({"precision": "fp8"}, 'precision: expected auto, float32 or bf16, got "fp8"'),
        ({"precision": ["auto"]}, r'precision: expected auto, float32 or bf16, got \["auto"\]'),
        ({"diversity_every": "never"}, 'diversity_every: expected a whole number or null, got "never"'),
        ({"distill": []}, r"distill: expected a JSON object, got \[\]"),
        ({"optim": {"clip": False}}, "optim.clip: expected a number or null, got false"),
        ({"optim": {"speed": 1, "drag": 2}}, "unknown fields optim.drag, optim.speed; it was written by another"),
        ({"optim": {"lr": float("inf")}}, "optim.lr: expected a finite number"),
    ],
)
def test_what_is_no_recipe_is_refused_by_name(change: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        from_dict(to_dict(recipe_named("digits")) | change)
    with pytest.raises(ValueError, match=r"^recipe: expected a JSON object, got \[\]$"):
        from_dict([])  # type: ignore[arg-type]


def test_what_an_older_recipe_does_not_say_is_as_by_default() -> None:
    assert from_dict({"name": "old", "epochs": 20, "optim": {"lr": 1}}) == Recipe(
        name="old", epochs=20, optim=OptimRecipe(lr=1)
    )


def test_the_demo_needs_no_file_and_no_gpu() -> None:
    recipe = recipe_named("digits")
    assert (recipe.data.source, recipe.device, recipe.members) == ("digits", "cpu", 4)
    # Two hundred images do not tell epochs apart: the last network is kept, not the first lucky one.
    assert recipe.eval_every >= recipe.epochs


def test_an_unknown_name_offers_the_nearest() -> None:
    with pytest.raises(ValueError, match="there is no 'cifar-10'; did you mean 'cifar10'"):
        recipe_named("cifar-10")
