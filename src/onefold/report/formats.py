"""The tables as Markdown and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from html import escape

from onefold.report.grid import Grid, Number
from onefold.report.table import Section
from onefold.run import COMMENT

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
    lines += [COMMENT, ""]
    return "\n".join(lines)


def markdown_table(grid: Grid) -> list[str]:
    """A heading, the caption and the table; on GitHub, a folded table opens when its title is clicked."""
    caption = grid.about + grid.where_papers_stand("in parentheses after ours")
    lines = ["<details>", f"<summary>{escape(grid.title)}</summary>"] if grid.folded else [f"### {grid.title}"]
    lines += ["", caption, ""] if caption else [""]
    lines.append(f"| {grid.first} | " + " | ".join(grid.headings) + " |")
    lines.append("| --- |" + " ---: |" * len(grid.headings))
    for label, cells in grid.rows:
        lines.append("| " + " | ".join([label.replace("|", "\\|"), *(worded(cell) for cell in cells)]) + " |")
    return [*lines, "", *(["</details>", ""] if grid.folded else [])]


def worded(cell: Number) -> str:
    """A number on one line."""
    ours = f"**{cell.text}**{cell.ours.removeprefix(cell.text)}" if cell.best else cell.ours
    return ours + (f" (paper {cell.papers}, {cell.difference})" if cell.papers and cell.mean is not None else "")


def comma_separated(tables: Tables) -> str:
    """One line per number, so that any program can read it."""
    content = io.StringIO()
    writer = csv.writer(content, lineterminator="\n")
    writer.writerow(CSV)
    for section, grids, _ in tables:
        for grid in grids:
            for label, cells in grid.rows:
                for heading, cell in zip(grid.headings, cells, strict=True):
                    papers = (None, None) if cell.paper is None else (cell.paper.mean, cell.paper.std)
                    numbers = [cell.mean, cell.deviation, *papers, cell.in_deviations]
                    shown = ["" if number is None else rounded(number) for number in numbers]
                    writer.writerow([section.data, section.network, grid.name, label, bare(heading), *shown])
    return content.getvalue()


def rounded(number: float) -> str:
    """With seven digits, which is what float32 has: without the noise of conversions, such as 57.49999999999999."""
    return repr(float(f"{number:.7g}"))


def bare(heading: str) -> str:
    return heading.replace(" ↑", "").replace(" ↓", "")
