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


@pytest.mark.parametrize(
    ("steps", "lines"),
    [
        ([0, 0, 0, 0], ["demo:   0%, 0 of 21", "demo:   0%, 0 of 21", "demo:   0%, 0 of 21"]),
        ([0, 2, 2000], ["demo:   0%, 0 of 21", "demo:  50%, 0 of 21, 20 s left"]),
        ([1000, 1000, 2000], ["demo:  25%, 0 of 21", "demo:  50%, 0 of 21, 40 s left"]),  # goes on from a checkpoint
        ([0, *[2] * 6], [*["demo:   0%, 0 of 21"] * 5, "demo:   0%, 0 of 21, 119940 s left"]),  # it is slow indeed
    ],
)
def test_the_time_left_is_told_once_there_is_something_to_estimate_it_from(
    steps: list[int], lines: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("onefold.terminal.lines.time.monotonic", lambda: now)
    stage = Lines(Console(stderr=True)).stage("demo")
    for done in steps:
        stage.count(done, 4000, "0 of 21")
        now += 10.0
    assert capsys.readouterr().err.splitlines() == lines
