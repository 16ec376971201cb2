from __future__ import annotations

import pytest
from rich.console import Console

from onefold.terminal import Lines


def test_lines_say_rate_loss_learning_rate_and_time_left(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("onefold.terminal.lines.time.monotonic", lambda: now)
    with Lines(Console(stderr=True)) as shown:
        stage = shown.stage("teacher 0")
        for done in range(41):
            stage.update(done, 40, 0.5, 0.1, 1234.0)
            now += 1.0
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "teacher 0:  25%, 1,234 examples/s, loss 0.5000, lr 0.1000, 30 s left"
    assert lines[-1] == "teacher 0: 100%, 1,234 examples/s, loss 0.5000, lr 0.1000"
    assert len(lines) == 4
