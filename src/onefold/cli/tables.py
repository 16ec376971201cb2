"""Tables on the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table

from onefold.report import COLUMNS, Section, cell, headings

ROOM = 112  # columns that a mean and a deviation side by side need


def section_table(section: Section, width: int) -> Table:
    """A table of a report; deviations stand below the means where there is no room beside them."""
    between = " ± " if width >= ROOM else "\n±"
    table = Table(title=f"{section.title}: {section.rows[0].examples:,} test images", box=box.SIMPLE_HEAD)
    table.add_column("network", no_wrap=True)
    for heading in headings(section.columns):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in section.rows:
        table.add_row(
            row.label,
            *(between.join(filter(None, cell(row, column))) for column in section.columns),
            end_section=between != " ± ",
        )
    return table


def metrics_table(rows: Sequence[tuple[str, dict[str, float]]]) -> Table:
    """Metrics of some networks, a row each."""
    columns = [column for column in COLUMNS if any(column.key in metrics for _, metrics in rows)]
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("network", overflow="fold")
    for heading in [*headings(columns), "temperature"]:
        table.add_column(heading, justify="right", no_wrap=True)
    for name, metrics in rows:
        cells = [f"{metrics[c.key] * c.scale:.{c.digits}f}" if c.key in metrics else "–" for c in columns]
        cells.append(f"{metrics['temperature']:.3f}" if "temperature" in metrics else "–")
        table.add_row(name, *cells)
    return table
