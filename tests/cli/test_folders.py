"""`onefold evaluate` of folders that hold runs."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from onefold.cli import main
from onefold.cli.folders import named

Capture = pytest.CaptureFixture[str]
Refused = Callable[[Sequence[str]], str]


@pytest.fixture
def home(teachers: Path, tmp_path: Path) -> Path:
    """Teachers of two seeds, and networks by themselves, as far below as one likes."""
    for seed in ("seed-1", "seed-0"):
        shutil.copytree(teachers, tmp_path / "runs" / seed / "teachers")
        shutil.copytree(teachers / "teacher-0", tmp_path / "runs" / seed / "kd")
    shutil.copytree(teachers / "teacher-1", tmp_path / "runs" / "deep" / "er" / "one")
    return tmp_path


ALL = ["deep/er/one", "seed-0/teachers", "seed-0/kd", "seed-1/teachers", "seed-1/kd"]


def test_a_folder_stands_for_all_runs_in_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    assert [each.name for each in named(["runs"])] == [f"runs/{name}" for name in ALL]
    assert [each.name for each in named(["runs/seed-0/kd", "runs/seed-0"])] == [
        "runs/seed-0/kd",
        "runs/seed-0/teachers",
    ]
    assert [(each.name, each.given) for each in named(["runs/seed-0/teachers"])] == [("runs/seed-0/teachers", True)]
    assert [each.name for each in named(["runs/seed-0/teachers/teacher-1"])] == ["runs/seed-0/teachers/teacher-1"]


def test_runs_are_in_the_order_of_their_names(teachers: Path, tmp_path: Path) -> None:
    """Not of their lengths; numbers count, and teachers come first."""
    runs = ["teachers", "z-teachers", "aekd-none", "be-gaussian", "kd", "kd-tdiv", "run-2", "run-10", "run-10b"]
    for seed in ("seed-9", "seed-10"):
        for name in reversed(runs):
            shutil.copytree(teachers if "teachers" in name else teachers / "teacher-0", tmp_path / seed / name)
    expected = [f"{tmp_path}/{seed}/{name}" for seed in ("seed-9", "seed-10") for name in runs]
    assert [each.name for each in named([str(tmp_path)])] == expected


def test_students_beside_their_teachers_are_found(home: Path) -> None:
    own = home / "runs" / "seed-0" / "teachers"
    shutil.copytree(home / "runs" / "seed-0" / "kd", own / "student")
    assert [(each.path, each.given) for each in named([str(own)])] == [(own, True), (own / "student", False)]


def test_one_row_for_each(home: Path, capsys: Capture) -> None:
    assert main(["evaluate", str(home / "runs")]) == 0
    rows = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.strip().startswith(str(home))]
    assert list(dict.fromkeys(rows)) == [str(home / "runs" / name) for name in ALL]


def test_what_is_not_finished_is_left_out_unless_it_was_given(home: Path, capsys: Capture, refused: Refused) -> None:
    for run in ("kd", "teachers/teacher-1"):
        (home / "runs" / "seed-0" / run / "result.json").unlink()
    capsys.readouterr()
    assert main(["evaluate", str(home / "runs")]) == 0
    told = capsys.readouterr()
    assert f"left out: {home}/runs/seed-0/kd is not a finished run" in told.err
    assert f"left out: {home}/runs/seed-0/teachers/teacher-1 is not finished" in told.err
    assert f"{home}/runs/seed-0" not in told.out
    assert f"{home}/runs/seed-1/kd" in told.out
    assert "is not a finished run" in refused(["evaluate", str(home / "runs" / "seed-0" / "kd")])
    assert "expected a finished run, got none" in refused(["evaluate", str(home / "runs" / "seed-0")])


def test_a_folder_without_runs(tmp_path: Path, refused: Refused) -> None:
    (tmp_path / "some" / "folder").mkdir(parents=True)
    assert "is neither a finished run nor a folder of teachers" in refused(["evaluate", str(tmp_path)])
