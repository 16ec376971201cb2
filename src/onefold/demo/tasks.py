"""The tasks of the demo: for every seed, four teachers and then three students of them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from onefold.data import Source, load
from onefold.engine import Progress, distill_run, train_teachers
from onefold.recipe import Recipe

TEACHERS = "teachers"


class Stage(Progress, Protocol):
    """Progress with a title that can change, also of work that is not training steps."""

    def title(self, text: str) -> None: ...

    def count(self, done: int, total: int, detail: str = "") -> None: ...


@dataclass(frozen=True)
class Teacher:
    """Teacher m of a seed."""

    recipe: Recipe
    folder: Path  # of the seed
    member: int
    cost: float = 1.0  # of a step, in units of a teacher's step

    @property
    def title(self) -> str:
        return f"seed {self.recipe.seed}, teacher {self.member}"

    @property
    def run(self) -> Path:
        return self.folder / TEACHERS / f"teacher-{self.member}"

    def train(self, source: Source, progress: Progress) -> None:
        train_teachers(self.recipe, self.folder / TEACHERS, members=[self.member], source=source, progress=progress)


@dataclass(frozen=True)
class Student:
    """A student of a seed's teachers."""

    recipe: Recipe
    folder: Path  # of the seed
    cost: float  # of a step, in units of a teacher's step

    @property
    def name(self) -> str:
        return student_folder(self.recipe.distill.method, self.recipe.distill.perturbation)

    @property
    def title(self) -> str:
        return f"seed {self.recipe.seed}, {self.name}"

    @property
    def run(self) -> Path:
        return self.folder / self.name

    def train(self, source: Source, progress: Progress) -> None:
        distill_run(self.recipe, self.run, self.folder / TEACHERS, source=source, progress=progress)


Task = Teacher | Student
STUDENTS = (("kd", "none", 1.5), ("latentbe", "none", 4.0), ("latentbe", "tdiv-sdiv", 6.0))


def student_folder(method: str, perturbation: str) -> str:
    return method if perturbation == "none" else f"{method}-{perturbation}"


def teacher_tasks(recipe: Recipe, folder: Path) -> list[Task]:
    return [Teacher(recipe, folder, m) for m in range(recipe.members)]


def student_tasks(recipe: Recipe, folder: Path) -> list[Task]:
    tasks: list[Task] = []
    for method, perturbation, cost in STUDENTS:
        distill = dataclasses.replace(recipe.distill, method=method, perturbation=perturbation)
        tasks.append(Student(dataclasses.replace(recipe, distill=distill), folder, cost))
    return tasks


def source_of(recipe: Recipe) -> Source:
    return load(recipe.data.source, recipe.data.root)


class Unseen:
    """Shows nothing."""

    def title(self, text: str) -> None:
        pass

    def update(self, done: int, total: int, loss: float, lr: float, rate: float) -> None:
        pass

    def count(self, done: int, total: int, detail: str = "") -> None:
        pass

    def message(self, text: str) -> None:
        pass


def unseen(_: str) -> Stage:
    return Unseen()
