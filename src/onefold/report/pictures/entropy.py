"""Histograms of the predictive entropy, in and out of distribution."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from matplotlib.figure import FigureBase

from onefold.report.measurements import Histogram
from onefold.report.pictures.axes import line, one_axes
from onefold.report.pictures.picture import Palette, Panel, Picture
from onefold.report.pictures.style import Style
from onefold.report.table import Row, Section

INSIDE, OUTSIDE = Style("s0"), Style("s1", (4, 2))


def entropy_pictures(section: Section) -> list[Picture]:
    """One picture for each set of another distribution, one panel for each row: the paper's layout."""
    measured = [a.measurements.ood for row in section.rows for a in row.answers if a.measurements.ood is not None]
    pictures = []
    for number, name in enumerate(dict.fromkeys(each.name for one in measured for each in one.sets)):
        panels = [made for row in section.rows if (made := panel(row, name)) is not None]
        caption = (
            f"Entropy of the predictions for {measured[0].name} (in) and for {name} (out), as shares of the images."
        )
        legend = (("in", INSIDE), (f"out: {name}", OUTSIDE))
        title = f"Predictive entropy: {name}"
        pictures.append(
            Picture(f"entropy-{number}", title, caption, tuple(panels), max(1, min(6, len(panels))), legend)
        )
    return pictures


def panel(row: Row, name: str) -> Panel | None:
    """The networks of a row taken together; those whose bins differ from the first's are left out."""
    found = [(one, each) for a in row.answers if (one := a.measurements.ood) for each in one.sets if each.name == name]
    if not found:
        return None
    inside = added([one.entropy for one, _ in found])
    outside = added([each.entropy for _, each in found])
    scores = [each.scores["entropy"]["auroc"] for _, each in found if "entropy" in each.scores]
    auroc = f", AUROC {sum(scores) / len(scores):.3f}" if scores else ""
    words = (
        f"Histograms of the predictive entropy of {row.label}: mean {middle(inside):.3f} nats in distribution, "
        f"{middle(outside):.3f} for {name}{auroc}."
    )
    return Panel(f"{row.label}{auroc}", words, functools.partial(draw, inside, outside))


def added(histograms: Sequence[Histogram]) -> Histogram:
    same = [each for each in histograms if each.edges == histograms[0].edges]
    counts = tuple(float(sum(values)) for values in zip(*(each.counts for each in same), strict=True))
    return Histogram(histograms[0].edges, counts)


def middle(histogram: Histogram) -> float:
    """The mean, from the middles of the bins."""
    middles = [(low + high) / 2 for low, high in zip(histogram.edges, histogram.edges[1:], strict=False)]
    return sum(m * c for m, c in zip(middles, histogram.counts, strict=True)) / sum(histogram.counts)


def draw(inside: Histogram, outside: Histogram, figure: FigureBase, palette: Palette) -> None:
    axes = one_axes(figure, "entropy, nats", "share of images, %")
    for histogram, style in ((inside, INSIDE), (outside, OUTSIDE)):
        total, colour = sum(histogram.counts), palette.of(style)
        shares = [100 * count / total for count in histogram.counts]
        axes.stairs(shares, list(histogram.edges), fill=True, color=colour, alpha=0.25, linewidth=0)
        line(axes, palette, style, histogram.edges, [*shares, shares[-1]], drawstyle="steps-post")
    axes.set_xlim(inside.edges[0], inside.edges[-1])
    axes.set_ylim(bottom=0)
