"""What a terminal shows."""

from __future__ import annotations

import io
import os
import re
from pathlib import Path

import pytest
from rich.console import Console

from onefold.cli import main
from onefold.terminal import Bars, Lines, display

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize("name", ["a [b] c", "{d}", ":one:", "größe 猫", "[bold]x"])
def test_names_are_shown_as_they_are(teachers: Path, tmp_path: Path, capsys: Capture, name: str) -> None:
    (tmp_path / name).symlink_to(teachers / "teacher-0")
    assert main(["evaluate", str(tmp_path / name)]) == 0
    assert name in capsys.readouterr().out
    for terminal in (False, True):
        with io.StringIO() as shown:
            with display(Console(file=shown, width=120, force_terminal=terminal)) as stages:
                stages.stage("first").message(f"folder{name}")
                stage = stages.stage(f"looking at folder{name}")
                stage.count(1, 3)
                if isinstance(stages, Bars):
                    stages.bars.refresh()
                stage.count(3, 3)
            text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.getvalue())
        assert text.count(f"folder{name}") >= 2, text


def test_a_terminal_that_knows_ascii_only(teachers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.BytesIO()
    with io.TextIOWrapper(shown, encoding="ascii") as stream:
        monkeypatch.setattr("sys.stdout", stream)
        assert main(["evaluate", str(teachers)]) == 0
        stream.flush()
        assert b"NLL" in shown.getvalue()


def test_lines_say_rate_loss_learning_rate_and_time_left(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("onefold.terminal.time.monotonic", lambda: now)
    with Lines(Console(stderr=True)) as shown:
        stage = shown.stage("teacher 0")
        for done in range(41):
            stage.update(done, 40, 0.5, 0.1, 1234.0)
            now += 1.0
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "teacher 0:  25%, 1,234 examples/s, loss 0.5000, lr 0.1000, 30 s left"
    assert lines[-1] == "teacher 0: 100%, 1,234 examples/s, loss 0.5000, lr 0.1000"
    assert len(lines) == 4


def test_bars_show_rate_loss_learning_rate_and_time_left() -> None:
    console = Console(force_terminal=True, width=120, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    with Bars(console) as shown:
        stage = shown.stage("teacher 0")
        stage.update(10, 40, 0.5, 0.1, 1234.0)
        stage.message("going on")
        shown.bars.refresh()
        during = [task.description for task in shown.bars.tasks]
        stage.title("teacher 1")
        renamed = [task.description for task in shown.bars.tasks]
        stage.update(40, 40, 0.4, 0.0, 1234.0)
        after = list(shown.bars.tasks)
    console.file.close()
    told = console.export_text()
    assert (during, renamed, after) == (["teacher 0"], ["teacher 1"], [])
    for part in ("1,234 examples/s", "loss 0.5000", "lr 0.1000", "25%", "going on"):
        assert part in told
