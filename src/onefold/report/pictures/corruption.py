"""Metrics of corrupted images, by severity."""

from __future__ import annotations

import functools
import statistics

from matplotlib.figure import FigureBase

from onefold.report.corrupted import EXTRA, measured
from onefold.report.pictures.axes import line, one_axes
from onefold.report.pictures.picture import Palette, Panel, Picture
from onefold.report.pictures.style import Style
from onefold.report.table import COLUMNS, Column, Row, Section

Lines = dict[str, list[tuple[float, float]]]


def corruption_picture(section: Section, styles: dict[str, Style]) -> Picture | None:
    """Accuracy, NLL and ECE against severity; severity 0 are the clean test images."""
    rows = [row for row in section.rows if measured(row)]
    if not rows:
        return None
    panels = tuple(
        panel(column, {row.label: by_severity(row, column) for row in rows}, styles) for column in COLUMNS[:3]
    )
    caption = (
        "Means over the corruptions of the benchmark, and over the networks of a row. Severity 0: the clean images."
    )
    legend = tuple((row.label, styles[row.label]) for row in rows)
    return Picture("corruption", "Corruption by severity", caption, panels, legend=legend)


def by_severity(row: Row, column: Column) -> list[tuple[float, float]]:
    found: dict[float, list[float]] = {0.0: row.values[column.key]}
    for one in measured(row):
        for each in one.rows:
            if each.corruption not in EXTRA:
                found.setdefault(float(each.severity), []).append(each.metrics[column.key])
    return [(severity, column.scale * statistics.fmean(values)) for severity, values in sorted(found.items())]


def panel(column: Column, lines: Lines, styles: dict[str, Style]) -> Panel:
    ends = "; ".join(
        f"{label} from {p[0][1]:.{column.digits}f} to {p[-1][1]:.{column.digits}f}" for label, p in lines.items()
    )
    words = f"{column.title} by severity of corruption, from clean to the worst: {ends}."
    return Panel(f"{column.title} by severity", words, functools.partial(draw, column, lines, styles))


def draw(column: Column, lines: Lines, styles: dict[str, Style], figure: FigureBase, palette: Palette) -> None:
    axes = one_axes(figure, "severity", column.title)
    for label, points in lines.items():
        line(axes, palette, styles[label], [x for x, _ in points], [y for _, y in points])
    axes.set_xticks(sorted({int(x) for points in lines.values() for x, _ in points}))
