"""Tables on the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from onefold.metrics import warning_of_temperature
from onefold.report import COLUMNS, Section, cell, headings

ROOM = 120  # columns that means and deviations side by side need


def section_table(section: Section, width: int) -> Table:
    """A table of a report; deviations stand below the means where there is no room beside them."""
    roomy = width >= ROOM
    between = " ± " if roomy else "\n±"
    table = new_table(Text(f"{section.title}: {section.rows[0].examples:,} test examples"), roomy)
    for heading in headings(section.columns):
        table.add_column(heading if roomy else heading.replace("/", "/\n"), justify="right", no_wrap=True)
    for row in section.rows:
        cells = [between.join(filter(None, cell(row, column))) for column in section.columns]
        table.add_row(Text(row.label), *cells, end_section=not roomy)
    return table


def metrics_table(rows: Sequence[tuple[str, dict[str, float]]]) -> Table:
    """Metrics of some networks, a row each."""
    columns = [column for column in COLUMNS if any(column.key in metrics for _, metrics in rows)]
    table = new_table(None, roomy=False)
    for heading in [*headings(columns), "T"]:
        table.add_column(heading, justify="right", no_wrap=True)
    for name, metrics in rows:
        cells = [f"{metrics[c.key] * c.scale:.{c.digits}f}" if c.key in metrics else "–" for c in columns]
        cells.append(f"{metrics['temperature']:.3f}" if "temperature" in metrics else "–")
        table.add_row(Text(name), *cells)  # a path may hold what looks like markup
    return table


def temperature_warnings(rows: Sequence[tuple[str, dict[str, float]]]) -> list[str]:
    """What is odd about the temperatures of such rows, a sentence for each oddity with the networks that have it."""
    named: dict[str, list[str]] = {}
    for name, metrics in rows:
        warning = warning_of_temperature(metrics.get("temperature"))
        if warning is not None:
            named.setdefault(warning, []).append(name)
    return [f"{', '.join(names)}: {warning}" for warning, names in named.items()]


def new_table(title: Text | None, roomy: bool) -> Table:
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 2 if roomy else 1, 0, 0), pad_edge=False)
    table.add_column("network", overflow="fold")
    return table
