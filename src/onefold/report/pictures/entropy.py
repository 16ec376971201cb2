"""The predictive entropy, in and out of distribution: the share of images above it, and histograms."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

from matplotlib.figure import FigureBase

from onefold.report.measurements import Histogram
from onefold.report.pictures.axes import line, logarithmic, one_axes
from onefold.report.pictures.picture import Palette, Panel, Picture
from onefold.report.pictures.style import Style
from onefold.report.table import Row, Section

INSIDE, OUTSIDE = Style("s0"), Style("s1", (3, 1.2))
THIN, PALE = 0.5, 0.6  # relative width and opacity of the lines for test images
LEAST, DECADES = 0.1, 1000  # percent at the bottom of a histogram, and the ratio of its top to that
Pair = tuple[Histogram, Histogram]  # in and out of distribution


def entropy_pictures(section: Section, styles: dict[str, Style]) -> list[Picture]:
    """A panel with all rows for each out-of-distribution set; and histograms like the paper's, for the main rows."""
    measured = [a.measurements.ood for row in section.rows for a in row.answers if a.measurements.ood is not None]
    if not measured:
        return []
    names, inside = list(dict.fromkeys(each.name for one in measured for each in one.sets)), measured[0].name
    return [above(section, names, inside, styles), histograms(section, names, inside)]


def above(section: Section, names: Sequence[str], inside: str, styles: dict[str, Style]) -> Picture:
    panels, drawn = [], set[str]()
    for name in names:
        pairs = {row.label: found for row in section.rows if (found := pair(row, name)) is not None}
        drawn |= pairs.keys()
        means = [f"{label} {middle(one):.3f} and {middle(other):.3f}" for label, (one, other) in pairs.items()]
        words = f"Share of images above each entropy; mean entropy in nats of {inside} and of {name}: "
        lines = functools.partial(draw_above, pairs, styles)
        panels.append(Panel(name, f"{words}{'; '.join(means)}.", lines, under=f"thin and pale: {inside}"))
    caption = (
        f"Share of images whose predictive entropy exceeds the value on the x axis: out-of-distribution images, and "
        f"{inside} as thin, pale lines. The further apart the two, the better the network recognises unfamiliar images."
    )
    legend = tuple((row.label, styles[row.label].bare) for row in section.rows if row.label in drawn)
    return Picture("entropy", "Predictive entropy, in and out of distribution", caption, tuple(panels), 3, legend)


def histograms(section: Section, names: Sequence[str], inside: str) -> Picture:
    rows = of_note([row for row in section.rows if any(pair(row, name) for name in names)])
    panels = []
    for name in names:
        for row in rows:
            if (found := pair(row, name)) is None:
                continue
            scores = aurocs(row, name)
            under = name + (f", AUROC {sum(scores) / len(scores):.3f}" if scores else "")
            words = (
                f"Histograms of the predictive entropy of {row.label}: mean {middle(found[0]):.3f} nats for {inside}, "
                f"{middle(found[1]):.3f} for {under}."
            )
            panels.append(Panel(row.label, words, functools.partial(draw, *found), under=under))
    caption = (
        f"Predictive entropy of {inside} (in) and of out-of-distribution images (out): the share of the images in each "
        "bin, on a logarithmic axis. AUROC is that of the entropy."
    )
    legend = (("in", INSIDE), ("out", OUTSIDE))
    title = "Histograms of the predictive entropy"
    return Picture("entropy-histograms", title, caption, tuple(panels), len(rows), legend)


def of_note(rows: Sequence[Row]) -> list[Row]:
    """The main rows: a single network, the largest ensemble, and the default student, or else the best student."""
    singles, ensembles, students = (
        [row for row in rows if row.first.kind == kind] for kind in ("single", "ensemble", "student")
    )
    chosen = [row for row in students if row.first.is_default][:1]
    chosen = chosen or sorted(students, key=lambda row: row.mean("nll") or 0.0)[:1]
    return [*singles[:1], *ensembles[-1:], *chosen]


def pair(row: Row, name: str) -> Pair | None:
    """Histograms over the networks of a row together; those whose bins differ from the first one's are left out."""
    found = [(one, each) for a in row.answers if (one := a.measurements.ood) for each in one.sets if each.name == name]
    if not found:
        return None
    return added([one.entropy for one, _ in found]), added([each.entropy for _, each in found])


def aurocs(row: Row, name: str) -> list[float]:
    sets = [each for a in row.answers if (one := a.measurements.ood) for each in one.sets if each.name == name]
    return [each.scores["entropy"]["auroc"] for each in sets if "entropy" in each.scores]


def added(each: Sequence[Histogram]) -> Histogram:
    same = [one for one in each if one.edges == each[0].edges]
    counts = tuple(float(sum(values)) for values in zip(*(one.counts for one in same), strict=True))
    return Histogram(each[0].edges, counts)


def middle(histogram: Histogram) -> float:
    """The mean, from the centres of the bins."""
    middles = [(low + high) / 2 for low, high in zip(histogram.edges, histogram.edges[1:], strict=False)]
    return sum(m * c for m, c in zip(middles, histogram.counts, strict=True)) / sum(histogram.counts)


def shares_above(histogram: Histogram) -> list[float]:
    """For each bin edge, the percentage of images above it."""
    total = sum(histogram.counts)
    return [100 * sum(histogram.counts[k:]) / total for k in range(len(histogram.edges))]


def draw_above(pairs: dict[str, Pair], styles: dict[str, Style], figure: FigureBase, palette: Palette) -> None:
    axes = one_axes(figure, "entropy, nats", "images above it, %")
    for label, (inside, outside) in pairs.items():
        style = styles[label].bare
        pale = dataclasses.replace(style, width=THIN * style.width, alpha=PALE)
        line(axes, palette, pale, inside.edges, shares_above(inside))
        line(axes, palette, style, outside.edges, shares_above(outside))
    edges = next(iter(pairs.values()))[0].edges
    axes.set(xlim=(edges[0], edges[-1]), ylim=(0, 100))


def draw(inside: Histogram, outside: Histogram, figure: FigureBase, palette: Palette) -> None:
    axes = one_axes(figure, "entropy, nats", "share of images, %, log")
    for histogram, style in ((inside, INSIDE), (outside, OUTSIDE)):
        total, edges = sum(histogram.counts), list(histogram.edges)
        shares = [100 * count / total for count in histogram.counts]
        axes.stairs(shares, edges, fill=True, baseline=LEAST, color=palette.of(style), alpha=0.2, linewidth=0)
        line(axes, palette, style, edges, [*shares, shares[-1]], drawstyle="steps-post")
    logarithmic(axes, DECADES)
    axes.set(xlim=(inside.edges[0], inside.edges[-1]), ylim=(LEAST, DECADES * LEAST))
