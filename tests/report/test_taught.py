"""Students and their teachers: whose mean a row is, and which ensemble a student is compared with."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from onefold.recipe import DistillRecipe, Recipe, to_dict
from onefold.recipes import cifar10, digits
from onefold.report import collect, report, sections
from onefold.report.compare import of_paper, reasons
from onefold.run import RunFolder, teachers_hash

WriteRun = Callable[..., RunFolder]
KD = dataclasses.replace(digits(), distill=DistillRecipe("kd", "none"))


class Student(NamedTuple):
    seed: int
    weights: str  # of its teachers
    folder: str
    epochs: int | None = None  # of their training, where it is known
    teachers_seed: int = 0
    method: str = "kd"
    members: int = 4


def trained(epochs: int, seed: int = 0) -> Recipe:
    return dataclasses.replace(digits(), epochs=epochs, seed=seed)


def write_student(run: RunFolder, student: Student) -> None:
    told: dict[str, object] = {"teachers_are": student.weights, "teachers": student.folder}
    if student.epochs is not None:
        told["teachers_trained"] = {"recipe": to_dict(trained(student.epochs, student.teachers_seed))}
    run.write_json("run.json", run.about | told)


A, B, C, D = (letter * 32 for letter in "abcd")


@pytest.mark.parametrize(
    ("students", "labels"),
    [
        ([Student(0, A, "t"), Student(1, A, "t")], ["KD of 2"]),
        ([Student(0, A, "t"), Student(1, A, "../moved/t", 20)], ["KD of 2"]),
        ([Student(0, A, "s"), Student(0, B, "t")], ["KD (teachers s) of 1", "KD (teachers t) of 1"]),
        (
            [Student(0, A, "t", 9), Student(0, B, "t", 9)],
            ["KD (teachers of 0) of 1", "KD (teachers of 1) of 1"],  # folders of theirs, which can be looked up
        ),
        ([Student(0, A, "s", 20, 0), Student(1, B, "t", 20, 1)], ["KD of 2"]),
        (
            [Student(0, A, "s", 20, 0), Student(1, B, "t", 30, 1)],
            ["KD (teachers' epochs 20) of 1", "KD (teachers' epochs 30) of 1"],
        ),
        (  # both recipes under both seeds
            [Student(0, A, "s", 20), Student(0, B, "t", 30), Student(1, C, "u", 20, 1), Student(1, D, "v", 30, 1)],
            ["KD (teachers' epochs 20) of 2", "KD (teachers' epochs 30) of 2"],
        ),
        # Of an older version, or from Python: nobody knows whether their teachers were trained alike.
        ([Student(0, A, "s"), Student(1, B, "t")], ["KD (teachers s) of 1", "KD (teachers t) of 1"]),
        ([Student(0, A, ""), Student(1, B, "")], ["KD (teachers of 0) of 1", "KD (teachers of 1) of 1"]),
        (
            [Student(0, A, "s"), Student(1, B, "t"), Student(1, C, "u", 20)],
            ["KD (teachers s) of 1", "KD (teachers t) of 1", "KD (teachers u) of 1"],
        ),
        (  # a row has the names of its own teachers
            [
                Student(0, A, "s", 20),
                Student(1, B, "t", 20),
                Student(2, A, "s", 20, method="latentbe"),
                Student(2, C, "u"),
            ],
            ["KD (teachers s, t) of 2", "KD (teachers u) of 1", "LatentBE (teachers s) of 1"],
        ),
        ([Student(0, A, "t"), Student(0, B, "t", members=2)], ["KD (2 teachers) of 1", "KD (4 teachers) of 1"]),
        (  # what differs between methods may be their teachers'
            [Student(0, A, "x/t"), Student(0, B, "y/t", method="latentbe")],
            ["KD (teachers x/t) of 1", "LatentBE (teachers y/t) of 1"],
        ),
        (
            [Student(0, A, "t", 20), Student(1, B, "t", 30, method="latentbe")],
            ["KD (teachers' epochs 20) of 1", "LatentBE (teachers' epochs 30) of 1"],
        ),
        ([Student(0, A, "s", 20), Student(1, B, "t", 20, method="latentbe")], ["KD of 1", "LatentBE of 1"]),
        (
            [Student(0, A, "s", 20), Student(0, B, "t", 20), Student(0, C, "u", 30)],
            [
                "KD (teachers' epochs 20, teachers s) of 1",
                "KD (teachers' epochs 20, teachers t) of 1",
                "KD (teachers' epochs 30) of 1",
            ],
        ),
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
        distill = DistillRecipe(student.method, "none")
        recipe = dataclasses.replace(KD, seed=student.seed, members=student.members, distill=distill)
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
    for epochs, told in (
        (5, "KD is better than the ensemble of 2"),
        (KD.epochs, "KD is worse than a single network in accuracy, NLL and cNLL"),
    ):
        write_student(run, Student(0, A, "t", epochs))
        page, _ = report([tmp_path], tmp_path / "report.md", format="md")
        assert f"Ensemble of 2 (epochs {epochs}): cNLL" in page.read_text()
        assert told in page.read_text()
    write_student(run, Student(0, A, "t", 7))  # which are not in the report
    page, _ = report([tmp_path], tmp_path / "report.md", format="md")
    assert re.search("\n- KD: cNLL [0-9.]+, accuracy [0-9.]+%, NLL [0-9.]+\\.\n", page.read_text())


def test_only_students_of_the_papers_teachers_are_compared_with_the_paper(tmp_path: Path, write: WriteRun) -> None:
    for seed, epochs in enumerate((200, 20)):
        recipe = dataclasses.replace(cifar10(), seed=seed, distill=DistillRecipe("kd", "none"))
        run = write(tmp_path / str(seed), recipe, seed, measured=False)
        trained = {"recipe": to_dict(dataclasses.replace(cifar10(), epochs=epochs))}
        run.write_json("run.json", run.about | {"teachers_are": f"{seed:032}", "teachers_trained": trained})
    (section,) = sections(collect([tmp_path])[0])
    assert [bool(of_paper(row.first)) for row in section.rows] == [True, False]
    (why,) = reasons(section.rows)
    assert why.endswith("because settings differ: KD (teachers' epochs 20): teachers' epochs is 20 (paper: 200).")


def write_teachers(folder: Path, recipe: Recipe, write: WriteRun) -> str:
    """Two of them; gives their hash."""
    each = [f"{folder.name} {m}" for m in range(2)]
    for m, weights in enumerate(each):
        run = write(folder / f"teacher-{m}", recipe, recipe.seed, member=m, measured=False)
        run.write_json("result.json", run.result | {"weights": weights})
    return teachers_hash(each)


def test_teachers_in_the_report_are_named_as_they_lie_there(tmp_path: Path, write: WriteRun) -> None:
    """Whatever the students have written down, or not."""
    for number, told in enumerate(("teachers", "")):
        weights = write_teachers(tmp_path / f"moved-{number}", trained(20), write)
        run = write(tmp_path / str(number), dataclasses.replace(KD, members=2), number, measured=False)
        write_student(run, Student(0, weights, told))
    (section,) = sections(collect([tmp_path])[0])
    assert [row.label for row in section.of_kind("student")] == ["KD (teachers moved-0)", "KD (teachers moved-1)"]


def test_students_learn_from_the_report_how_their_teachers_were_trained(tmp_path: Path, write: WriteRun) -> None:
    for seed in range(2):
        for epochs in (5, 9):
            weights = write_teachers(tmp_path / f"{epochs}-{seed}", trained(epochs, seed), write)
            recipe = dataclasses.replace(KD, seed=seed, members=2)
            run = write(tmp_path / f"kd-{epochs}-{seed}", recipe, seed, measured=False, strength=2.7)
            write_student(run, Student(seed, weights, ""))
    page, (section,) = report([tmp_path], tmp_path / "report.md", format="md")
    assert [f"{row.label} of {row.networks}" for row in section.of_kind("student")] == [
        "KD (teachers' epochs 5) of 2",
        "KD (teachers' epochs 9) of 2",
    ]
    for epochs in (5, 9):
        (said,) = [
            line for line in page.read_text().split("\n- ") if line.startswith(f"KD (teachers' epochs {epochs})")
        ]
        assert f"gain that the ensemble of 2 (epochs {epochs})" in said
