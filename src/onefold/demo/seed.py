"""One repetition of the demo: four teachers, three students."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from onefold.data import load
from onefold.engine import Progress, distill_run, train_teachers
from onefold.recipe import Recipe

TEACHERS = "teachers"


class Stage(Progress, Protocol):
    """Progress with a name that changes."""

    def title(self, text: str) -> None: ...


@dataclass(frozen=True)
class Student:
    """A student of the demo; `cost` is how long a step takes, a teacher's being 1."""

    method: str
    perturbation: str
    cost: float

    @property
    def folder(self) -> str:
        return self.method if self.perturbation == "none" else f"{self.method}-{self.perturbation}"

    def recipe(self, recipe: Recipe) -> Recipe:
        distill = dataclasses.replace(recipe.distill, method=self.method, perturbation=self.perturbation)
        return dataclasses.replace(recipe, distill=distill)


STUDENTS = (Student("kd", "none", 2), Student("latentbe", "none", 4), Student("latentbe", "tdiv-sdiv", 6))


def run_seed(recipe: Recipe, folder: Path, stage: Stage) -> None:
    """Trains everything of one seed; what is finished already is left as it is."""
    source = load(recipe.data.source, recipe.data.root)
    shares = [1.0] * recipe.members + [student.cost for student in STUDENTS]
    whole = Whole(stage, shares)
    for m in range(recipe.members):
        whole.begin(f"seed {recipe.seed}, teacher {m}")
        train_teachers(recipe, folder / TEACHERS, members=[m], source=source, progress=whole)
    for student in STUDENTS:
        whole.begin(f"seed {recipe.seed}, {student.folder}")
        own = student.recipe(recipe)
        distill_run(own, folder / student.folder, folder / TEACHERS, source=source, progress=whole)
    whole.end()


class Whole:
    """Progress of one part after another as that of the whole, by how long each takes."""

    def __init__(self, stage: Stage, shares: list[float]) -> None:
        self.stage, self.shares = stage, shares
        self.part = -1
        self.last = (0.0, 0.0, 0.0)  # loss, learning rate, images a second

    def begin(self, title: str) -> None:
        self.part += 1
        self.stage.title(title)

    def update(self, done: int, total: int, loss: float, lr: float, rate: float) -> None:
        self.last = loss, lr, rate
        before = sum(self.shares[: self.part])
        # Never all of it: the last network has still to be evaluated.
        reached = min((before + self.shares[self.part] * done / total) / sum(self.shares), 0.999)
        self.stage.update(int(1000 * reached), 1000, loss, lr, rate)

    def message(self, text: str) -> None:
        """Which part it is, the title says."""

    def end(self) -> None:
        self.stage.update(1000, 1000, *self.last)


class Unseen:
    """Shows nothing."""

    def title(self, text: str) -> None:
        pass

    def update(self, done: int, total: int, loss: float, lr: float, rate: float) -> None:
        pass

    def message(self, text: str) -> None:
        pass


def unseen(_: str) -> Stage:
    return Unseen()
