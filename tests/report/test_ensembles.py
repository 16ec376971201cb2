"""Ensembles of the first teachers: which they are, and whose measurements are theirs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from onefold.recipes import cifar10, digits
from onefold.report import collect, grids, report, sections
from onefold.run import RunFolder

WriteRun = Callable[..., RunFolder]


def measure(folder: Path, acc: float) -> None:
    """A file of corrupted images at one severity."""
    folder.mkdir(parents=True)
    row = {"corruption": "fog", "severity": 1, "acc": acc, "nll": 1.0, "ece": 0.1, "count": 400}
    content = {"version": 1, "source": "generated, seed 0", "rows": [row]}
    (folder / "corruption.json").write_text(json.dumps(content))


def test_a_measurement_stays_with_the_ensemble_it_is_of(tmp_path: Path, write: WriteRun) -> None:
    """More teachers may have been trained since."""
    for m in range(3):
        write(tmp_path / "teachers" / f"teacher-{m}", cifar10(), 0, member=m, measured=False)
    measure(tmp_path / "teachers" / "measurements" / "first-2", 0.5)
    measure(tmp_path / "teachers" / "measurements" / "first-3", 0.6)
    write(tmp_path / "teachers" / "teacher-3", cifar10(), 0, member=3, measured=False)
    answers = {answer.label: answer for answer in collect([tmp_path])[0] if answer.kind == "ensemble"}
    assert list(answers) == [f"ensemble of {m}" for m in (1, 2, 3, 4)]
    found = {label: answer.measurements.corruption for label, answer in answers.items()}
    assert found["ensemble of 1"] is found["ensemble of 4"] is None
    assert [found[f"ensemble of {m}"].rows[0].metrics["acc"] for m in (2, 3)] == [0.5, 0.6]  # type: ignore[union-attr]


def test_a_damaged_measurement_of_an_ensemble_is_a_line(tmp_path: Path, write: WriteRun) -> None:
    for m in range(2):
        write(tmp_path / f"teacher-{m}", cifar10(), 0, member=m, measured=False)
    measure(tmp_path / "measurements" / "first-2", 0.5)
    (tmp_path / "measurements" / "first-2" / "corruption.json").write_text("{")
    page, _ = report([tmp_path], tmp_path / "report.md", format="md")
    assert "first-2/corruption.json is damaged and is left out; measure it again" in page.read_text()


def test_the_first_ones_end_where_one_is_missing(tmp_path: Path, write: WriteRun) -> None:
    for m in range(4):
        write(tmp_path / f"teacher-{m}", cifar10(), 0, member=m, measured=False)
    (tmp_path / "teacher-2" / "result.json").unlink()
    answers, notes = collect([tmp_path])
    assert [answer.label for answer in answers if answer.kind == "ensemble"] == ["ensemble of 1", "ensemble of 2"]
    assert len([answer for answer in answers if answer.kind == "single"]) == 3
    assert any("teacher-2 is not in this report, so there are only ensembles of the first 2" in note for note in notes)


@pytest.mark.parametrize("absent", [0, 1])
def test_there_is_no_ensemble_of_less_than_two(absent: int, tmp_path: Path, write: WriteRun) -> None:
    for m in {0, 1, 2} - {absent}:
        write(tmp_path / f"teacher-{m}", cifar10(), 0, member=m, measured=False)
    answers, notes = collect([tmp_path])
    assert {answer.kind for answer in answers} == {"single"}
    assert notes == [f"{tmp_path}: no ensemble: teacher-{absent} is missing"]


def test_an_ensemble_may_have_been_timed_with_its_students(tmp_path: Path, write: WriteRun) -> None:
    for m in range(8):
        write(tmp_path / "teachers" / f"teacher-{m}", cifar10(), 0, member=m, measured=False)
    student = write(tmp_path / "student", cifar10(), 0, measured=False)  # of four
    times = [{"what": w, "batch": 1, "ms_per_image": ms} for w, ms in (("ensemble", 4.0), ("collapsed", 1.5))]
    (student.path / "measurements").mkdir()
    content = {"version": 1, "device": "x", "train_seconds": 1.0, "inference": times}
    (student.path / "measurements" / "costs.json").write_text(json.dumps(content))
    (section,) = sections(collect([tmp_path])[0])
    (costs,) = [grid for grid in grids(section) if grid.name == "costs"]
    shown = {label: cells[1].mean for label, cells in costs.rows}
    assert shown == {
        "single network": None,
        "ensemble of 4": 4.0,
        "ensemble of 8": None,
        "LatentBE + TDiv-SDiv": 1.5,
    }


def test_the_first_teacher_is_no_mean_over_all(tmp_path: Path, write: WriteRun) -> None:
    for m in range(3):
        write(tmp_path / f"teacher-{m}", digits(), m, member=m, strength=2.0 + m / 2, measured=False)
    (section,) = sections(collect([tmp_path])[0])
    (sizes,) = [dict(grid.rows) for grid in grids(section) if grid.name == "ensembles"]
    with np.load(tmp_path / "teacher-0" / "predictions" / "test.npz") as arrays:
        right = float((arrays["logits"].argmax(1) == arrays["labels"]).mean())
    assert sizes["ensemble of 1"][0].mean == pytest.approx(100 * right)
    assert section.rows[0].label == "single network"
    assert section.rows[0].mean("acc") != pytest.approx(right)
    assert "ensemble of 1" not in [row.label for row in section.rows]


def test_a_copied_run_counts_once(tmp_path: Path, write: WriteRun) -> None:
    """Not as another seed, whose deviation would be zero."""
    for m in range(2):
        run = write(tmp_path / "a" / "teachers" / f"teacher-{m}", digits(), 0, member=m, measured=False)
        run.write_json("result.json", run.result | {"weights": f"{m:032}"})
    run = write(tmp_path / "a" / "student", digits(), 0, measured=False)
    run.write_json("result.json", run.result | {"weights": f"{2:032}"})
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    third = write(tmp_path / "b" / "teachers" / "teacher-2", digits(), 0, member=2, measured=False)
    third.write_json("result.json", third.result | {"weights": f"{3:032}"})  # copied, then one more was trained
    answers, notes = collect([tmp_path])
    (section,) = sections(answers)
    assert {row.label: row.networks for row in (*section.rows, *section.sizes)} == {
        "single network": 3,
        "ensemble of 1": 1,
        "ensemble of 2": 1,
        "ensemble of 3": 1,
        "LatentBE + TDiv-SDiv": 1,
    }
    copies = [f"{tmp_path}/b/{name}" for name in ("student", "teachers/teacher-0", "teachers/teacher-1")]
    assert sorted(notes) == [
        f"{copy} has the same weights as {copy.replace('/b/', '/a/')}, so it is left out" for copy in copies
    ]
