"""Numbers beside an axis."""

from __future__ import annotations

import pytest
from matplotlib.figure import Figure

from onefold.report.pictures.axes import Even, logarithmic, margins, one_axes


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ([0.1, 0.15, 0.2], ["0.10", "0.15", "0.20"]),
        ([0.0, 20.0, 100.0], ["0", "20", "100"]),
        ([-0.05, -0.0, 0.05], ["\u22120.05", "0.00", "0.05"]),
        ([92.5, 93.0], ["92.5", "93.0"]),
        ([0.001, 0.01, 0.1, 1.0], ["0.001", "0.01", "0.1", "1"]),  # decades: no decimals fit them all
        ([12000.0, 15000.0], ["12000", "15000"]),
    ],
)
def test_all_have_as_many_decimals(values: list[float], texts: list[str]) -> None:
    assert Even().format_ticks(values) == texts


def test_numbers_that_are_not_in_the_picture_do_not_count() -> None:
    axes = Figure().subplots()
    axes.plot([0, 1], [0.3, 2.0])
    logarithmic(axes, 7)
    axes.set_ylim(0.25, 2.4)
    low, high = axes.get_ylim()
    ticks = axes.get_yticks()
    shown = [
        t
        for t, y in zip(axes.yaxis.get_major_formatter().format_ticks(ticks.tolist()), ticks, strict=True)
        if low < y < high
    ]
    assert shown == ["0.3", "0.5", "0.7", "1.0", "1.5", "2.0"]


def test_margins_are_as_wide_in_every_panel() -> None:
    wide, narrow = Figure(figsize=(6, 3)), Figure(figsize=(3, 3))
    assert margins(wide, left=0.6)["left"] * 6 == margins(narrow, left=0.6)["left"] * 3 == pytest.approx(0.6)
    boxes = [one_axes(figure, "x", "y").get_position() for figure in (wide, narrow)]
    assert 6 * boxes[0].x0 == pytest.approx(3 * boxes[1].x0)
    assert boxes[0].height == pytest.approx(boxes[1].height)
