"""Runs that are not finished: a line, and a learning curve of what is there."""

from __future__ import annotations

import html
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from onefold.recipes import cifar10
from onefold.report import report
from onefold.report.pictures import unfinished_pictures
from onefold.report.runs import gathered
from onefold.report.unfinished import curve
from onefold.run import RunFolder

WriteRun = Callable[..., RunFolder]
A_STEP = 352  # steps of an epoch


def stopped(run: RunFolder, lines: int | None = None) -> Path:
    """The run as it was before its end, after so many lines of its log."""
    (run.path / "result.json").unlink()
    log = run.path / "metrics.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:lines]))
    return run.path


def test_its_curves_are_drawn(tmp_path: Path, write: WriteRun) -> None:
    write(tmp_path / "done", cifar10(), 0, measured=False)
    path = stopped(write(tmp_path / "going", cifar10(), 1, measured=False), 20)
    records = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    (run,) = gathered([tmp_path]).going
    assert (run.label, run.title, run.path, run.epochs) == (
        "LatentBE + TDiv-SDiv, seed 0",
        "cifar10, wrn28x1",
        path,
        200,
    )
    wanted = [(r["step"] / A_STEP, r["nll"]) for r in records if r["kind"] == "val"]
    assert curve(run, "val", "nll") == wanted
    (picture,) = unfinished_pictures([run])
    assert [panel.title for panel in picture.panels] == ["training loss", "validation error, %", "validation NLL"]
    assert f"{run.label}: 5.0 of 200 epochs" in picture.caption
    error = [100 - 100 * r["acc"] for r in records if r["kind"] == "val"]
    assert f"from {error[0]:.4g} to {error[-1]:.4g}" in picture.panels[1].description
    page, _ = report([tmp_path], tmp_path / "report.html", figures=tmp_path / "figures")
    text = html.unescape(page.read_text())
    assert "Unfinished runs" in text
    assert picture.panels[1].description in text
    assert "going is not finished (step" in text
    assert {path.name for path in (tmp_path / "figures" / "unfinished").iterdir()} == {
        "unfinished-0.svg",
        "unfinished-0.pdf",
    }


def test_within_an_epoch_there_may_be_several_points(tmp_path: Path, write: WriteRun) -> None:
    path = stopped(write(tmp_path / "a", cifar10(), 0, measured=False), 0)
    for step in (50, 100, 150):
        RunFolder(path).log({"kind": "train", "step": step, "epoch": 1, "loss": 1 / step})
    (run,) = gathered([path]).going
    assert curve(run, "train", "loss") == [(step / A_STEP, 1 / step) for step in (50, 100, 150)]
    (picture,) = unfinished_pictures([run])
    assert [panel.title for panel in picture.panels] == ["training loss"]


@pytest.mark.parametrize("lines", [0, 1])
def test_a_log_that_is_too_short_is_a_line_only(tmp_path: Path, write: WriteRun, lines: int) -> None:
    path = stopped(write(tmp_path / "a", cifar10(), 0, measured=False), lines)
    page, _ = report([path], tmp_path / "report.html")
    assert "a is not finished" in page.read_text()
    assert "Unfinished runs" not in page.read_text()
    assert unfinished_pictures(gathered([path]).going) == []


@pytest.mark.parametrize("how", ["log", "about", "no steps"])
def test_one_that_is_damaged_too_is_a_line_only(tmp_path: Path, write: WriteRun, how: str) -> None:
    path = stopped(write(tmp_path / "a", cifar10(), 0, measured=False))
    if how == "log":
        (path / "metrics.jsonl").write_text("what?\n{}\n")
    elif how == "about":
        (path / "run.json").write_text("no")
    else:
        (path / "run.json").write_text("{}")
    found = gathered([path])
    assert found.going == []
    assert len(found.notes) == 1


def test_runs_of_one_name_are_told_apart(tmp_path: Path, write: WriteRun) -> None:
    for name in ("a", "b"):
        stopped(write(tmp_path / name / "student", cifar10(), 0, measured=False))
    for m in range(2):
        stopped(write(tmp_path / "teachers" / f"teacher-{m}", cifar10(), 0, member=m, measured=False))
    (picture,) = unfinished_pictures(gathered([tmp_path]).going)
    assert [label for label, _ in picture.legend] == [
        "LatentBE + TDiv-SDiv, seed 0 (a/student)",
        "LatentBE + TDiv-SDiv, seed 0 (b/student)",
        "teacher 0, seed 0",
        "teacher 1, seed 0",
    ]
