"""The command that `onefold train` proposes next: a student of the teachers it has just trained."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from onefold.cli.requests import Train
from onefold.data import Source, beyond_pixels
from onefold.methods import HYPERPARAMETERS, is_taken, method_named, perturbation_named
from onefold.recipe import Recipe, leaves
from onefold.recipes import recipe_named
from onefold.terminal import propose, say


def propose_student(request: Train, recipe: Recipe, folder: Path, source: Source | None) -> None:
    """Proposes to distil the teachers in a folder. Without a source, they had been trained before."""
    asked, perturbation = request.fields.distill.perturbation, recipe.distill.perturbation
    if perturbation != asked:
        say(f"the student gets no perturbation: '{asked}' needs more teachers than {recipe.members}")
    elif perturbation != "none" and source is not None and beyond_pixels(source.train) is not None:
        say(f"the student gets no perturbation: '{perturbation}' needs uint8 images or floats in [0, 1]")
        recipe = without_perturbation(recipe)
    student = ["--out", str(beside(folder))] if request.out else []
    words = ["onefold", "distill", request.recipe, "--teachers", str(folder), *student]
    propose([*words, *changed(request.recipe, recipe, without=untaken(request.recipe, recipe))])


def beside(folder: Path) -> Path:
    """Where to put the student of the teachers in a folder: next to them, under a name that tells whose it is."""
    folder = folder.resolve() if folder.name in ("", "..") else folder
    return folder.parent / ("student" if folder.name == "teachers" else f"{folder.name}-student")


def without_perturbation(recipe: Recipe) -> Recipe:
    return dataclasses.replace(recipe, distill=dataclasses.replace(recipe.distill, perturbation="none"))


def check_perturbed(recipe: Recipe, source: Source) -> None:
    """Refuses images that the recipe's perturbation would clip."""
    perturbation, ends = recipe.distill.perturbation, beyond_pixels(source.train)
    if perturbation != "none" and ends is not None:
        raise ValueError(
            f"perturbation: '{perturbation}' needs images in [0, 1], and those of {recipe.data.source} are from "
            f"{ends[0]:.3g} to {ends[1]:.3g}; use --distill.perturbation none, or give them as uint8 or in [0, 1] and "
            "let the network normalise them"
        )


def chosen(name: str, recipe: Recipe) -> dict[str, object]:
    """The hyperparameters of the student that differ from those of the named recipe. Label smoothing is not among them:
    it is for the teachers, and both are often given the same flags."""
    before = leaves(recipe_named(name))
    own = {f"distill.{one}" for one in HYPERPARAMETERS}
    return {field: value for field, value in leaves(recipe).items() if field in own and value != before[field]}


def untaken(name: str, recipe: Recipe) -> list[str]:
    """Those of them that neither the student's method nor its perturbation takes."""
    method, perturbation = method_named(recipe.distill.method), perturbation_named(recipe.distill.perturbation)
    return [field for field in chosen(name, recipe) if not is_taken(method, perturbation, field)]


def changed(name: str, recipe: Recipe, without: Sequence[str] = ()) -> list[str]:
    """The flags that turn the named recipe into this one."""
    before = leaves(recipe_named(name))
    words = []
    for field, value in leaves(recipe).items():
        group, dot, last = ("recipe.members" if field == "members" else field).replace("_", "-").rpartition(".")
        if value == before[field] or field == "data.download" or field in without:
            continue
        switch = f"--{group}{dot}no-{last}" if value is False else f"--{group}{dot}{last}"
        words += [switch] if isinstance(value, bool) else [switch, str(value)]
    return words
