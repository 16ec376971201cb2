"""Curves over epochs."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from onefold.report.pictures.curves import CHANGES, ERROR, LOSS, NLL, PALE, TRAIN_DIV, WINDOW, draw, smoothed
from onefold.report.pictures.picture import PRINTED
from onefold.report.pictures.style import Style


def drawn(title: str, values: list[float]) -> Axes:
    figure = Figure()
    draw(title, {"a": list(enumerate(values, 1))}, {"a": Style("s0")}, figure, PRINTED)
    figure.draw_without_rendering()
    (axes,) = figure.axes
    return axes


@pytest.mark.parametrize(
    ("title", "values", "scale"),
    [
        (NLL, [2.5, 0.6, 0.2], "log"),
        (NLL, [0.5, 0.3, 0.2], "log"),  # however little they fall: pictures of two data sets are read alike
        (ERROR, [60.0, 9.0, 6.0], "log"),
        (TRAIN_DIV, [1.2, 0.01, 0.0005], "log"),
        (TRAIN_DIV, [1.2, 0.01, 0.0], "linear"),  # members that agree have no place on the other one
        (CHANGES[0][0], [0.01, 0.2, 0.6], "linear"),
        (f"{LOSS}, LatentBE", [2.5, 0.6, 0.01], "linear"),
    ],
)
def test_what_an_axis_is_like_goes_by_what_it_shows(title: str, values: list[float], scale: str) -> None:
    axes = drawn(title, values)
    assert axes.get_yscale() == scale
    assert axes.get_ylabel().endswith(", log") == (scale == "log")
    low, high = axes.get_ylim()
    places = zip(axes.get_yticks(), axes.get_yticklabels(), strict=True)
    ticks = [label.get_text() for y, label in places if label.get_text() and low <= y <= high]
    assert len(ticks) > 2
    assert all("10^" not in tick for tick in ticks)


def test_a_line_is_the_median_of_five_and_the_curve_is_behind_it() -> None:
    values = [1 / k + 0.1 * math.sin(9 * k) + 0.5 for k in range(1, 21)]
    values[9] = 40.0  # one that no line should follow
    behind, line = drawn(NLL, values).lines
    assert np.asarray(behind.get_ydata()).tolist() == values
    assert behind.get_alpha() == PALE
    shown = np.asarray(line.get_ydata(), dtype=float).tolist()
    assert shown[2:-2] == [statistics.median(values[k - 2 : k + 3]) for k in range(2, 18)]
    assert max(shown) < 2
    assert shown[1] == statistics.median(values[:3])
    assert (shown[0], shown[-1]) == (values[0], values[-1])


def test_a_few_points_are_drawn_as_they_are() -> None:
    points = [(float(k), float(k % 2)) for k in range(WINDOW)]
    assert smoothed(points) == points
    (line,) = drawn(CHANGES[1][0], [y for _, y in points]).lines
    assert line.get_alpha() == 1
