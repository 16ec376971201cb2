"""What is said about folders that are not the teachers' own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onefold.engine import teachers
from onefold.engine.teachers import check_content, teacher_runs
from onefold.run import RunFolder


def begun(path: Path, **about: Any) -> Path:
    path.mkdir(parents=True)
    run = RunFolder(path)
    run.write_json("recipe.json", {})
    run.write_json("run.json", about)
    return path


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two folders of teachers and a student, in runs, from the folder above."""
    monkeypatch.chdir(tmp_path)
    for folder in ("a/teachers", "b/seed-0/teachers"):
        for m in range(2):
            begun(Path("runs", folder, f"teacher-{m}"), kind="teacher", member=m)
    begun(Path("runs/a/kd"), kind="student", teachers="runs/a/teachers")
    begun(Path("runs/a/moved"), kind="student", teachers="elsewhere/teachers")
    begun(Path("runs/a/python"), kind="python")
    return Path("runs")


@pytest.mark.parametrize(
    ("folder", "said"),
    [
        ("runs/a/teachers/teacher-1", "is a single teacher; give the folder that contains it, runs/a/teachers"),
        ("runs/a/kd", "is the run of a student, not a folder of teachers; its teachers are in runs/a/teachers"),
        ("runs/a/moved", "is the run of a student, not a folder of teachers; give a folder made by `onefold train`"),
        ("runs/a/python", "is the run of a student, not a folder of teachers; give a folder made by `onefold train`"),
        ("runs/a", "has no teachers itself; give the folder in it: runs/a/teachers"),
        ("runs", "has no teachers itself; give one of the folders in it: runs/a/teachers, runs/b/seed-0/teachers"),
    ],
)
@pytest.mark.usefixtures("runs")
def test_another_folder_is_told_from_that_of_the_teachers(folder: str, said: str) -> None:
    with pytest.raises(ValueError) as refused:
        teacher_runs(folder)
    assert str(refused.value) == f"teachers: {folder} {said}"


def test_the_folder_of_a_teacher_is_named_from_inside(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = (runs / "a/teachers").resolve()
    monkeypatch.chdir(folder / "teacher-0")
    with pytest.raises(ValueError, match=f"the folder that contains it, {folder}$"):
        teacher_runs(".")


def test_one_split_or_several_have_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunFolder(begun(tmp_path / "run", data_content={"train": "1", "val": "2"}))
    source: Any = None
    for now, said in (
        ({"train": "3", "val": "2"}, "^data: train of npz:a is not what"),
        ({"train": "3", "val": "4"}, "^data: train and val of npz:a are not what"),
    ):
        monkeypatch.setattr(teachers, "traces", lambda _, now=now: now)
        with pytest.raises(ValueError, match=said):
            check_content(run, "npz:a", source)


def test_a_folder_with_nothing_in_it_says_what_was_expected(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"expected teacher-0, teacher-1, .* got none; run `onefold train`"):
        teacher_runs(tmp_path)
