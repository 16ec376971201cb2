"""Reliability diagrams, before and after temperature scaling."""

from __future__ import annotations

import functools
import math
from typing import Any

from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import FigureBase
from matplotlib.ticker import FixedLocator, NullFormatter

from onefold.metrics import Reliability
from onefold.report.pictures.axes import margins, plain
from onefold.report.pictures.picture import SIZES, Palette, Panel, Picture
from onefold.report.table import Row, Section

SIZE = (SIZES[4][0], 2.9)
LEAST = 0.1  # percent of the predictions, at the bottom of their axis
FEW = 10  # bins with fewer predictions are drawn pale
HALVES, NAMED = [0, 0.5, 1], ["0.0", "0.5", "1.0"]  # labelled ticks; there are unlabelled ones at the quarters


def reliability_picture(section: Section) -> Picture:
    """A panel for each row, and a second one if there is a temperature."""
    panels = []
    for row in section.rows:
        panels.append(panel(row, row.before, "", "ece"))
        if row.after is not None:
            panels.append(panel(row, row.after, f"{row.mean('temperature'):.2f}", "cece"))
    caption = (
        "Predictions are grouped into 15 bins by confidence: the filled bar is the accuracy of a bin, the thick line "
        "its mean confidence. A calibrated network follows the dashed line; bins with fewer than "
        f"{FEW} predictions are pale. Below, the percentage of predictions in each bin, on a logarithmic axis. T is "
        "the temperature, 1 or the one fitted on the validation split; the networks of a row are pooled."
    )
    return Picture("reliability", "Confidence and accuracy", caption, tuple(panels), columns=4)


def panel(row: Row, bins: Reliability, temperature: str, key: str) -> Panel:
    name = row.label + (f" at temperature {temperature}" if temperature else "")
    error = row.mean(key)
    assert error is not None, "every row has been measured"
    drawn = functools.partial(draw, bins=bins)
    return Panel(row.label, described(bins, name), drawn, SIZE, f"T {temperature or 1}, ECE {error:.4f}")


def draw(figure: FigureBase, palette: Palette, bins: Reliability) -> None:
    """Accuracy against confidence in each bin, and the share of predictions in each bin."""
    around = margins(figure, left=0.62, right=0.13)
    upper, lower = figure.subplots(2, 1, sharex=True, gridspec_kw=around | {"hspace": 0.14, "height_ratios": [3, 1]})
    draw_gaps(upper, palette, bins)
    draw_shares(lower, palette, bins)
    plain(upper)
    plain(lower)


def draw_gaps(axes: Axes, palette: Palette, bins: Reliability) -> None:
    """Bars up to the accuracy, and the gap from there to the confidence."""
    width = 1 / len(bins.count)
    entries = filled(bins)
    for weight, chosen in (
        (1.0, [entry for entry in entries if int(bins.count[entry[0]]) >= FEW]),
        (0.4, [entry for entry in entries if int(bins.count[entry[0]]) < FEW]),
    ):
        if not chosen:
            continue
        middles = [(index + 0.5) * width for index, _, _ in chosen]
        confidences, accuracies = [c for _, c, _ in chosen], [a for _, _, a in chosen]
        lows, highs = [min(c, a) for _, c, a in chosen], [max(c, a) for _, c, a in chosen]
        zeros = [0.0] * len(chosen)
        bars(axes, middles, zeros, accuracies, width * 0.84, facecolors=palette.accuracy, linewidths=0, alpha=weight)
        bars(axes, middles, lows, highs, width * 0.84, facecolors="none", edgecolors=palette.gap, alpha=weight)
        sides = [index * width for index, _, _ in chosen], [(index + 1) * width for index, _, _ in chosen]
        axes.hlines(confidences, *sides, color=palette.gap, linewidth=2.5, alpha=weight)
    axes.plot([0, 1], [0, 1], color=palette.ink, linewidth=1, linestyle=(0, (4, 3)))
    axes.set(xlim=(0, 1), ylim=(0, 1), ylabel="accuracy")
    axes.set_yticks(HALVES, NAMED)
    axes.yaxis.set_minor_locator(FixedLocator([0.25, 0.75]))


def draw_shares(axes: Axes, palette: Palette, bins: Reliability) -> None:
    """The share of the predictions in each bin, in percent."""
    width = 1 / len(bins.count)
    total = int(bins.count.sum())
    middles = [(index + 0.5) * width for index in range(len(bins.count))]
    shares = [100 * count / total for count in bins.count.tolist()]
    bars(axes, middles, [LEAST] * len(shares), shares, width * 0.86, facecolors=palette.faint, linewidths=0)
    axes.set(yscale="log", ylim=(LEAST, 100), xlabel="confidence", ylabel="share, %")
    axes.set_xticks(HALVES, NAMED)
    axes.xaxis.set_minor_locator(FixedLocator([0.25, 0.75]))
    axes.set_yticks([LEAST, 100], [f"{LEAST}", "100"])
    axes.yaxis.set_minor_locator(FixedLocator([1, 10]))
    axes.yaxis.set_minor_formatter(NullFormatter())


def bars(axes: Axes, middles: list[float], lows: list[float], highs: list[float], width: float, **looks: Any) -> None:
    """Draws bars as a single collection: each of matplotlib's own bars takes a millisecond."""
    half = width / 2
    corners = [
        [(x - half, low), (x + half, low), (x + half, high), (x - half, high)]
        for x, low, high in zip(middles, lows, highs, strict=True)
    ]
    axes.add_collection(PolyCollection(corners, **looks), autolim=False)


def filled(bins: Reliability) -> list[tuple[int, float, float]]:
    """Index, confidence and accuracy of the bins that are not empty."""
    pairs = zip(bins.confidence.tolist(), bins.accuracy.tolist(), strict=True)
    return [(index, c, a) for index, (c, a) in enumerate(pairs) if not math.isnan(c)]


def described(bins: Reliability, name: str) -> str:
    """A description of the picture in words, for screen readers."""
    count = bins.count.tolist()
    total = sum(count)
    widest = max(filled(bins), key=lambda entry: abs(entry[1] - entry[2]) * count[entry[0]])
    index, confidence, accuracy = widest
    direction = "overconfident" if confidence > accuracy else "underconfident"
    return (
        f"Reliability diagram of {name}, {total:,} predictions in {len(count)} bins. "
        f"{100 * count[-1] / total:.0f}% of them are in the most confident bin. The bin that adds most to the "
        f"calibration error is that of confidence {index / len(count):.2f} to {(index + 1) / len(count):.2f}: mean "
        f"confidence {confidence:.3f}, accuracy {accuracy:.3f}, {direction}."
    )
