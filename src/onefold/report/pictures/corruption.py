"""Metrics on corrupted images, by severity."""

from __future__ import annotations

import functools
import statistics

from matplotlib.figure import FigureBase

from onefold.report.corrupted import EXTRA, measured
from onefold.report.pictures.axes import line, one_axes
from onefold.report.pictures.picture import Palette, Panel, Picture
from onefold.report.pictures.style import Style
from onefold.report.table import COLUMNS, Column, Row, Section

Points = list[tuple[float, float]]
Lines = dict[str, Points]
LESS = "minus the single network's"


def corruption_picture(section: Section, styles: dict[str, Style]) -> Picture | None:
    """Accuracy, NLL and ECE against severity; severity 0 is the clean test images. Only rows measured on the same
    images."""
    every = [row for row in section.rows if measured(row)]
    if not every:
        return None
    accuracy, source = COLUMNS[0], measured(every[0])[0].source
    rows = [row for row in every if measured(row)[0].source == source]
    alone = next((row for row in rows if row.first.kind == "single"), None)
    panels = [panel(column, {row.label: by_severity(row, column) for row in rows}, styles) for column in COLUMNS[:3]]
    caption = (
        "Means over the corruptions of the benchmark, and over the networks of a row. Severity 0: the clean images."
    )
    if len(rows) < len(every):
        caption += f" Only rows measured on the same images as the first: {source}."
    if alone is not None:
        single = by_severity(alone, accuracy)
        # Corruption costs all of them many times as much as they differ, so show the difference.
        lines = {row.label: less(by_severity(row, accuracy), single) for row in rows}
        panels[0] = panel(accuracy, lines, styles, LESS)
        told = ", ".join(f"{value:.{accuracy.digits}f}" for _, value in single)
        caption += f" Accuracy is shown as the difference to that of the {alone.label}, which is "
        caption += f"{told}% at severities {single[0][0]:.0f} to {single[-1][0]:.0f}."
    legend = tuple((row.label, styles[row.label]) for row in rows)
    return Picture("corruption", "Corruption by severity", caption, tuple(panels), legend=legend)


def by_severity(row: Row, column: Column) -> Points:
    used = measured(row)
    clean = [answer.metrics[column.key] for answer in row.answers if answer.measurements.corruption in used]
    found: dict[float, list[float]] = {0.0: clean}
    for one in used:
        for each in one.rows:
            if each.corruption not in EXTRA:
                found.setdefault(float(each.severity), []).append(each.metrics[column.key])
    return [(severity, column.scale * statistics.fmean(values)) for severity, values in sorted(found.items())]


def less(points: Points, others: Points) -> Points:
    """The differences, at severities where both have been measured."""
    known = dict(others)
    return [(x, y - known[x]) for x, y in points if x in known]


def panel(column: Column, lines: Lines, styles: dict[str, Style], less: str = "") -> Panel:
    sign = "+" if less else ""
    title = f"{column.title} {less or 'by severity'}"
    ends = "; ".join(
        f"{label} from {p[0][1]:{sign}.{column.digits}f} to {p[-1][1]:{sign}.{column.digits}f}"
        for label, p in lines.items()
    )
    words = f"{column.title} {less + ' ' if less else ''}by severity of corruption, from clean to the worst: {ends}."
    return Panel(title, words, functools.partial(draw, column.title, lines, styles, bool(less)))


def draw(
    title: str, lines: Lines, styles: dict[str, Style], difference: bool, figure: FigureBase, palette: Palette
) -> None:
    axes = one_axes(figure, "severity", f"{title}, difference" if difference else title)
    if difference:
        axes.axhline(0, color=palette.ink, linewidth=0.8, zorder=1)
    for label, points in lines.items():
        line(axes, palette, styles[label], [x for x, _ in points], [y for _, y in points])
    axes.set_xticks(sorted({int(x) for points in lines.values() for x, _ in points}))
