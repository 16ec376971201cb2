"""Recipes by name, each a function that returns a complete recipe."""

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
    """The recipe with that name; an unknown name is refused, suggesting the closest one."""
    return named("recipe", name, RECIPES)()
