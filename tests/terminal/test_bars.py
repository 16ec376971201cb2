"""Bars, and the texts that leave them room."""

from __future__ import annotations

import io
import os
import re

import pytest
from rich.cells import cell_len
from rich.console import Console

from onefold.terminal import Bars
from onefold.terminal.bars import BAR, fitting

BAR_SIGNS = "━╸╺"
TITLES = (
    "seed 0, latentbe-tdiv-sdiv",
    "teacher 0",
    "12 of 80: cifar10, latentbe of 4, seed 0 and 3 more at once",
    "größe 猫",
)


def shown(width: int, titles: tuple[str, ...]) -> list[str]:
    """The lines of a terminal of so many columns, one for each stage."""
    with io.StringIO() as drawn, io.StringIO() as read:
        with Bars(Console(force_terminal=True, width=width, file=drawn)) as bars:
            for title in titles:
                bars.stage(title).update(10, 40, 30.0, 0.0465, 501.0)
            bars.stage("demo").count(12, 21, "12 of 21 networks")
            # What is left of a bar is drawn in another colour alone.
            Console(force_terminal=True, color_system="256", width=width, file=read).print(bars.bars.get_renderable())
        return re.sub(r"\x1b\[[0-9;]*m", "", read.getvalue()).splitlines()


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


@pytest.mark.parametrize("width", [40, 60, 80, 99, 100, 120])
@pytest.mark.parametrize("titles", [TITLES[:1], TITLES[1:2], TITLES[2:3], TITLES])
def test_every_bar_is_seen(width: int, titles: tuple[str, ...]) -> None:
    lines = shown(width, titles)
    assert len(lines) == len(titles) + 1
    for line in lines:
        assert cell_len(line) <= width
        assert sum(line.count(sign) for sign in BAR_SIGNS) >= BAR


def test_what_there_is_no_room_for_goes_from_the_end() -> None:
    texts = [(TITLES[0], ("501 examples/s", "loss 30.00", "lr 0.0465")), ("demo", ("12 of 21 networks",))]
    assert fitting(texts, 120)[0] == ("seed 0, latentbe-tdiv-sdiv", "501 examples/s, loss 30.00, lr 0.0465")
    assert fitting(texts, 99)[0] == ("s0 latentbe-tdiv-sdiv", "501 examples/s, loss 30.00")
    assert fitting(texts, 80) == [
        ("s0 latentbe-tdiv-sdiv", "501 examples/s, loss 30.00"),
        ("demo", "12 of 21 networks"),
    ]
    assert fitting(texts, 70)[0] == ("s0 latentbe-tdiv-sdiv", "501 examples/s")
    assert fitting(texts, 60)[0] == ("s0 latentbe-tdi…", "501 examples/s")
    assert fitting(texts, 45)[0] == ("s0 latentbe-tdiv-…", "")
    assert fitting([], 80) == []
