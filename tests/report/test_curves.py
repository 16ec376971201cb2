"""Curves over epochs."""

from __future__ import annotations

import pytest
from matplotlib.figure import Figure

from onefold.report.pictures.curves import LOSS, NLL, TRAIN_DIV, draw
from onefold.report.pictures.picture import PRINTED
from onefold.report.pictures.style import Style


@pytest.mark.parametrize(
    ("title", "values", "scale"),
    [
        (NLL, [2.5, 0.6, 0.2], "log"),
        (NLL, [4.1, 1.2, 0.75], "log"),
        (NLL, [0.5, 0.3, 0.2], "linear"),
        (TRAIN_DIV, [1.2, 0.01, 0.0005], "log"),
        (TRAIN_DIV, [1.2, 0.01, 0.0], "linear"),
        (LOSS, [2.5, 0.6, 0.01], "linear"),
    ],
)
def test_what_falls_far_is_logarithmic(title: str, values: list[float], scale: str) -> None:
    figure = Figure()
    draw(title, {"a": list(enumerate(values, 1))}, {"a": Style("s0")}, figure, PRINTED)
    (axes,) = figure.axes
    assert axes.get_yscale() == scale
    figure.draw_without_rendering()
    low, high = axes.get_ylim()
    places = zip(axes.get_yticks(), axes.get_yticklabels(), strict=True)
    ticks = [label.get_text() for y, label in places if label.get_text() and low <= y <= high]
    assert len(ticks) > 2
    assert all("10^" not in tick for tick in ticks)
