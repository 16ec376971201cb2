"""Recipes by name: each is a function that returns a complete one."""

from __future__ import annotations

from collections.abc import Callable

from onefold.names import named
from onefold.recipe import Recipe
from onefold.recipes.digits import digits
from onefold.recipes.paper import cifar10, cifar100, imagenet, tiny_imagenet_r18, tiny_imagenet_wrn

RECIPES: dict[str, Callable[[], Recipe]] = {
    "digits": digits,
    "cifar10": cifar10,
    "cifar100": cifar100,
    "tiny-imagenet-r18": tiny_imagenet_r18,
    "tiny-imagenet-wrn": tiny_imagenet_wrn,
    "imagenet": imagenet,
}

__all__ = [
    "RECIPES",
    "cifar10",
    "cifar100",
    "digits",
    "imagenet",
    "recipe_named",
    "tiny_imagenet_r18",
    "tiny_imagenet_wrn",
]


def recipe_named(name: str) -> Recipe:
    """The recipe of that name; an unknown one is refused and the nearest offered."""
    return named("recipe", name, RECIPES)()
