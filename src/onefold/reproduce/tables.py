"""The content of the paper's tables: teachers, and students by method, perturbation and number of teachers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from onefold.recipe import Recipe
from onefold.recipes import cifar10, cifar100, imagenet, tiny_imagenet_r18, tiny_imagenet_wrn


@dataclass(frozen=True)
class StudentRow:
    """A row of students; `name` selects it on the command line."""

    name: str
    method: str
    perturbation: str
    members: int

    def recipe(self, base: Recipe, seed: int) -> Recipe:
        distill = dataclasses.replace(base.distill, method=self.method, perturbation=self.perturbation)
        return dataclasses.replace(base, members=self.members, seed=seed, distill=distill)


@dataclass(frozen=True)
class Setting:
    """A data set and network: its teachers, which all rows share, and the rows of a table."""

    recipe: Callable[[], Recipe]
    teachers: int  # number that the paper trains in this setting, over all tables
    needed: int  # number of these that this table needs
    rows: tuple[StudentRow, ...]


@dataclass(frozen=True)
class Table:
    """A table of the paper: its settings, and the number of students per row."""

    settings: tuple[Setting, ...]
    seeds: int
    measures: tuple[str, ...] = ()  # what is measured in addition to predictions


# In the order in which they are run: the most informative about our method first.
ORDER = (
    ("kd", "none"),
    ("latentbe", "none"),
    ("latentbe", "tdiv-sdiv"),
    ("aekd", "none"),
    ("proxy-end2", "none"),
    ("latentbe", "confods"),
    ("latentbe", "tdiv"),
    ("be", "none"),
    ("be", "confods"),
    ("be", "tdiv-sdiv"),
)
MAIN = tuple(pair for pair in ORDER if pair != ("latentbe", "tdiv"))
SINGLE_PASS = tuple(pair for pair in MAIN if pair[0] != "be")
ABLATION = (("latentbe", "none"), ("latentbe", "tdiv-sdiv"), ("latentbe", "confods"), ("latentbe", "tdiv"))
SHORT = (("kd", "none"), ("latentbe", "none"), ("latentbe", "tdiv-sdiv"))
TIMED = (*SHORT, ("be", "none"), ("be", "tdiv-sdiv"))
SINGLE_KD = StudentRow("single-kd", "kd", "none", 1)


def students(members: int, *pairs: tuple[str, str]) -> tuple[StudentRow, ...]:
    return tuple(
        StudentRow(row_name(method, perturbation), method, perturbation, members) for method, perturbation in pairs
    )


def row_name(method: str, perturbation: str) -> str:
    return method if perturbation == "none" else f"{method}-{perturbation}"


def tiny(recipe: Callable[[], Recipe]) -> Setting:
    return Setting(recipe, 4, 4, (*students(4, *SINGLE_PASS), SINGLE_KD))


CORRUPTED, COSTS = "corrupted images", "inference time"
C10, C100 = 8, 4  # teachers of CIFAR-10 and CIFAR-100
TABLES: dict[str, Table] = {
    "cifar10": Table((Setting(cifar10, C10, C10, (*students(4, *MAIN), *students(8, *MAIN))),), 4),
    "cifar100": Table((Setting(cifar100, C100, C100, (*students(4, *MAIN), *students(2, *MAIN))),), 4),
    "ablation": Table((Setting(cifar100, C100, 4, students(4, *ABLATION)),), 4),
    "corrupted": Table(
        (
            Setting(cifar10, C10, 4, students(4, *SINGLE_PASS)),
            Setting(cifar100, C100, 4, students(4, *SINGLE_PASS)),
        ),
        4,
        (CORRUPTED,),
    ),
    "baselines": Table((Setting(cifar10, C10, 8, (SINGLE_KD,)), Setting(cifar100, C100, 4, (SINGLE_KD,))), 4),
    "tinyimagenet": Table((tiny(tiny_imagenet_r18), tiny(tiny_imagenet_wrn)), 3),
    "imagenet": Table((Setting(imagenet, 2, 2, (*students(2, *SHORT), SINGLE_KD)),), 1),
    "costs": Table((Setting(cifar100, C100, 4, students(4, *TIMED)),), 1, (COSTS,)),
}
