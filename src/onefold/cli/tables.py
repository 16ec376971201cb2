"""Tables on the terminal."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from onefold.metrics import warning_of_temperature
from onefold.report import COLUMNS, Grid, Section, cell, headings

ANY = 10_000  # characters: wide enough for any table
LEAST = 12  # characters: names are not broken into lines shorter than this

Line = tuple[str, Sequence[tuple[str, str]]]  # a label, and a mean and a standard deviation for each column


def section_table(section: Section, width: int) -> Table:
    """A table of a report."""
    title = f"{section.title}: {section.examples} test examples"
    rows = [(row.label, [cell(row, column) for column in section.columns]) for row in section.rows]
    return fitting(title, "network", headings(section.columns), rows, width)


def grid_table(grid: Grid, width: int, data: str = "") -> Table:
    """One of the other tables of a report; its title names data and network if there are several."""
    title = grid.title if not data else f"{grid.title}, {data}"
    rows = [(label, [(number.text, number.spread) for number in numbers]) for label, numbers in grid.rows]
    return fitting(title, grid.first, grid.headings, grouped(rows), width)


def grouped(rows: Sequence[Line]) -> list[Line]:
    """Groups rows such as `NETWORK: this` and `NETWORK: that` under a line with the part they share."""
    found: list[Line] = []
    for head, each in itertools.groupby(rows, key=lambda row: row[0].rpartition(": ")[0]):
        same = list(each)
        if not head or len(same) == 1:
            found += same
        else:
            found += [(head, ()), *(("  " + label.removeprefix(f"{head}: "), numbers) for label, numbers in same)]
    return found


def fitting(title: str, first: str, columns: Sequence[str], rows: Sequence[Line], width: int) -> Table:
    """The widest layout that fits; in narrow ones, deviations are below the means instead of beside them."""
    split = [heading.replace("/", "/\n") for heading in columns]
    forms = [(columns, " ± ", 2), (columns, " ± ", 1), (columns, "\n±", 1), (split, "\n±", 1)]
    made = (filled(new_table(Text(title), apart, first), names, rows, between) for names, between, apart in forms)
    tables = list(made)
    return next((table for table in tables if needed(table) <= width), tables[-1])


def filled(table: Table, columns: Sequence[str], rows: Sequence[Line], between: str) -> Table:
    for heading in columns:
        table.add_column(heading, justify="right", no_wrap=True)
    for label, numbers in rows:
        below = "\n" in between and any(deviation for _, deviation in numbers)
        table.add_row(Text(label), *(between.join(filter(None, each)) for each in numbers), end_section=below)
    return table


def deviations(section: Section) -> str:
    """A sentence on what the deviations are over; empty if there are none."""
    groups: dict[int, list[str]] = {}
    for row in section.rows:
        groups.setdefault(row.networks, []).append(row.label)
    if max(groups) == 1:
        return ""
    said = "± is the standard deviation over the networks of a row"
    if len(groups) == 1:
        return f"{said}: {next(iter(groups))} in each"
    most = max(groups, key=lambda count: len(groups[count]))
    parts = [f"{count} in {', '.join(labels)}" for count, labels in groups.items() if count != most]
    return f"{said}: {', '.join(parts)}, {most} in the other{'s' * (len(groups[most]) > 1)}"


def metrics_table(rows: Sequence[tuple[str, dict[str, float]]], width: int = ANY) -> Table:
    """Metrics of some networks, one row each. If names are too long, the folder they share moves to the title."""
    names = [name for name, _ in rows]
    table = metrics_of(rows, names, None)
    if needed(table) <= width:
        return table
    folder = shared([os.path.dirname(name) for name in names])
    if folder and len(names) > 1:
        names = [os.path.relpath(name, folder) for name in names]
    title = Text(f"in {folder}") if folder and len(names) > 1 else None
    room = width - needed(table) + max(len(name) for name, _ in rows)
    return metrics_of(rows, [at_slashes(name, room) for name in names], title)


def metrics_of(rows: Sequence[tuple[str, dict[str, float]]], names: Sequence[str], title: Text | None) -> Table:
    columns = [column for column in COLUMNS if any(column.key in metrics for _, metrics in rows)]
    table = new_table(title)
    for heading in [*headings(columns), "T"]:
        table.add_column(heading, justify="right", no_wrap=True)
    for name, (_, metrics) in zip(names, rows, strict=True):
        cells = [f"{metrics[c.key] * c.scale:.{c.digits}f}" if c.key in metrics else "–" for c in columns]
        cells.append(f"{metrics['temperature']:.3f}" if "temperature" in metrics else "–")
        table.add_row(Text(name), *cells)  # as Text, because a path may contain what looks like markup
    return table


def shared(folders: Sequence[str]) -> str:
    """The folder that all paths share; empty if there is none or only the root."""
    try:
        found = os.path.commonpath(folders)
    except ValueError:  # a mix of relative and absolute paths
        return ""
    return "" if found == os.sep else found


def at_slashes(path: str, room: int) -> str:
    """Breaks a path into lines after slashes."""
    if len(path) <= room or room < LEAST:
        return path
    lines = [""]
    for part in path.replace("/", "/\n").split("\n"):
        if lines[-1] and len(lines[-1]) + len(part) > room:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def temperature_warnings(rows: Sequence[tuple[str, dict[str, float]]]) -> list[str]:
    """Warnings about suspicious temperatures, each listing all networks it applies to."""
    named: dict[str, list[str]] = {}
    for name, metrics in rows:
        warning = warning_of_temperature(metrics.get("temperature"), metrics)
        if warning is not None:
            named.setdefault(warning, []).append(name)
    return [f"{', '.join(names)}: {warning}" for warning, names in named.items()]


def new_table(title: Text | None, apart: int = 1, first: str = "network") -> Table:
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, apart, 0, 0), pad_edge=False)
    table.add_column(first, overflow="fold")
    return table


def needed(table: Table) -> int:
    """The width at which no cell is broken."""
    console = Console(width=ANY)
    return Measurement.get(console, console.options, table).maximum
