"""Students and their teachers: whose mean a row is, and which ensemble a student is compared with."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from onefold.recipe import DistillRecipe, Recipe, to_dict
from onefold.recipes import digits
from onefold.report import collect, report, sections
from onefold.run import RunFolder

WriteRun = Callable[..., RunFolder]
KD = dataclasses.replace(digits(), distill=DistillRecipe("kd", "none"))


class Student(NamedTuple):
    seed: int
    weights: str  # of its teachers
    folder: str
    epochs: int | None = None  # of their training, where it is known
    teachers_seed: int = 0


def trained(epochs: int, seed: int = 0) -> Recipe:
    return dataclasses.replace(digits(), epochs=epochs, seed=seed)


def write_student(run: RunFolder, student: Student) -> None:
    told: dict[str, object] = {"teachers_are": student.weights, "teachers": student.folder}
    if student.epochs is not None:
        told["teachers_trained"] = {"recipe": to_dict(trained(student.epochs, student.teachers_seed))}
    run.write_json("run.json", run.about | told)


A, B = "a" * 32, "b" * 32


@pytest.mark.parametrize(
    ("students", "labels"),
    [
        ([Student(0, A, "t"), Student(1, A, "t")], ["KD of 2"]),
        ([Student(0, A, "t"), Student(1, A, "../moved/t", 20)], ["KD of 2"]),
        ([Student(0, A, "s"), Student(0, B, "t")], ["KD (teachers s) of 1", "KD (teachers t) of 1"]),
        (
            [Student(0, A, "t", 9), Student(0, B, "t", 9)],
            ["KD (teachers aaaaaaaa) of 1", "KD (teachers bbbbbbbb) of 1"],
        ),
        ([Student(0, A, "s", 20, 0), Student(1, B, "t", 20, 1)], ["KD of 2"]),
        ([Student(0, A, "s", 20, 0), Student(1, B, "t", 30, 1)], ["KD (teachers s) of 1", "KD (teachers t) of 1"]),
        ([Student(0, A, "s"), Student(1, B, "t")], ["KD (teachers s) of 1", "KD (teachers t) of 1"]),
        (
            [Student(0, A, "s", 20), Student(1, A, "s", 20), Student(1, B, "t", 20)],
            ["KD (teachers s) of 2", "KD (teachers t) of 1"],
        ),
    ],
)
def test_a_row_is_no_mean_of_unlike_students(
    students: Sequence[Student], labels: list[str], tmp_path: Path, write: WriteRun
) -> None:
    """Other teachers are another experiment, but for seeds that have teachers of their own, trained alike."""
    for number, student in enumerate(students):
        recipe = dataclasses.replace(KD, seed=student.seed)
        write_student(write(tmp_path / str(number), recipe, number, measured=False), student)
    answers, notes = collect([tmp_path])
    (section,) = sections(answers)
    assert notes == []
    assert [f"{row.label} of {row.networks}" for row in section.rows] == labels


def test_a_student_is_compared_with_its_teachers(tmp_path: Path, write: WriteRun) -> None:
    """Not with those whose recipe is the student's."""
    for epochs, strength in ((KD.epochs, 3.5), (5, 2.0)):
        for m in range(2):
            place = tmp_path / f"teachers of {epochs}" / f"teacher-{m}"
            write(place, trained(epochs), 0, member=m, measured=False, strength=strength)
    run = write(tmp_path / "student", dataclasses.replace(KD, members=2), 0, measured=False)
    for epochs, told in ((5, "KD keeps all and more"), (KD.epochs, "KD is worse than a single network by NLL")):
        write_student(run, Student(0, A, "t", epochs))
        page, _ = report([tmp_path], tmp_path / "report.md", format="md")
        assert f"Ensemble of 2 (epochs {epochs}): accuracy" in page.read_text()
        assert told in page.read_text()
