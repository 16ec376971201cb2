"""What each further teacher adds to the ensemble."""

from __future__ import annotations

import functools

from matplotlib.figure import FigureBase

from onefold.report.pictures.axes import line, one_axes
from onefold.report.pictures.picture import Palette, Panel, Picture
from onefold.report.pictures.style import ENSEMBLE
from onefold.report.table import COLUMNS, Column, Row, Section


def sizes_picture(section: Section) -> Picture | None:
    """Accuracy, NLL and ECE of ensembles of 1, 2, ... teachers."""
    if not section.sizes:
        return None
    panels = tuple(panel(list(section.sizes), column) for column in COLUMNS[:3])
    caption = "Ensembles of the first teachers; that of one is the first teacher."
    return Picture("ensembles", "Ensembles by size", caption, panels)


def panel(rows: list[Row], column: Column) -> Panel:
    values = [(float(row.first.members), column.scale * (row.mean(column.key) or 0.0)) for row in rows]
    first, last = values[0], values[-1]
    words = f"{column.title} from {first[1]:.{column.digits}f} of {first[0]:.0f} to {last[1]:.{column.digits}f} of "
    words += f"{last[0]:.0f} networks."
    return Panel(f"{column.title} by teachers", f"Ensembles by size: {words}", functools.partial(draw, column, values))


def draw(column: Column, values: list[tuple[float, float]], figure: FigureBase, palette: Palette) -> None:
    axes = one_axes(figure, "teachers", column.title)
    line(axes, palette, ENSEMBLE, [x for x, _ in values], [y for _, y in values])
    axes.set_xticks(sorted({int(x) for x, _ in values}))
