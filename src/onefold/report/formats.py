"""The tables as Markdown and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from onefold.report.grid import Grid, Number
from onefold.report.table import Section

Tables = Sequence[tuple[Section, Sequence[Grid], Sequence[str]]]  # a section, its tables and its sentences
NOTHING = "There is no finished run to report on."
CSV = ("data", "network", "table", "row", "column", "mean", "deviation", "paper", "paper_deviation", "in_deviations")


def markdown(title: str, tables: Tables, notes: Sequence[str]) -> str:
    lines = [f"# {title}", ""]
    if not tables:
        lines += [NOTHING, ""]
    for section, grids, sentences in tables:
        lines += [f"## {section.title}", "", *(f"- {sentence}" for sentence in sentences), ""]
        for grid in grids:
            lines += markdown_table(grid)
    if notes:
        lines += ["## Left out", "", *(f"- {note}" for note in notes), ""]
    return "\n".join(lines)


def markdown_table(grid: Grid) -> list[str]:
    """A heading, the caption and the table."""
    caption = grid.caption + grid.where_papers_stand("in brackets behind ours")
    lines = [f"### {grid.title}", "", caption, ""] if caption else [f"### {grid.title}", ""]
    lines.append(f"| {grid.first} | " + " | ".join(grid.headings) + " |")
    lines.append("| --- |" + " ---: |" * len(grid.headings))
    for label, cells in grid.rows:
        lines.append("| " + " | ".join([label.replace("|", "\\|"), *(worded(cell) for cell in cells)]) + " |")
    return [*lines, ""]


def worded(cell: Number) -> str:
    """A number in one line."""
    return cell.ours + (f" (paper {cell.papers}, {cell.difference})" if cell.papers and cell.mean is not None else "")


def comma_separated(tables: Tables) -> str:
    """One line for each number, so that any program can take it up."""
    content = io.StringIO()
    writer = csv.writer(content, lineterminator="\n")
    writer.writerow(CSV)
    for section, grids, _ in tables:
        for grid in grids:
            for label, cells in grid.rows:
                for heading, cell in zip(grid.headings, cells, strict=True):
                    paper = cell.paper
                    numbers = [cell.mean, cell.deviation, paper and paper.mean, paper and paper.std, cell.in_deviations]
                    shown = ["" if number is None else repr(number) for number in numbers]
                    writer.writerow([section.data, section.network, grid.name, label, bare(heading), *shown])
    return content.getvalue()


def bare(heading: str) -> str:
    return heading.replace(" ↑", "").replace(" ↓", "")
