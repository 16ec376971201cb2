"""What a terminal shows."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from onefold.cli import main
from onefold.terminal import Bars, display

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
                stage = stages.stage(f"reading folder{name}")
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
