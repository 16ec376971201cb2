"""The tables as LaTeX."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from onefold.report.formats import Tables
from onefold.report.grid import Grid, Number
from onefold.report.table import Section

SIGNS = {c: f"\\{c}" for c in "&%$#_{}"} | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}"}
SIGNS |= {"^": r"\textasciicircum{}", "±": r"$\pm$", "↑": r"$\uparrow$", "↓": r"$\downarrow$", "²": "$^2$"}
SIGNS |= {"σ": r"$\sigma$", "–": "--", "\u2212": "$-$", "\u00a0": "~", "µ": r"$\mu$"}
MOST = 6  # columns of numbers in a table; wider tables are split
# The table's own width or that of the text, whichever is smaller.
FITTED = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"


def latex(title: str, tables: Tables, notes: Sequence[str]) -> str:
    """All tables, for a document that uses the packages booktabs and graphicx."""
    lines = [rf"% {title}; needs \usepackage{{booktabs}} and \usepackage{{graphicx}}"]
    lines += [f"% left out: {note}" for note in notes]
    for section, grids, _ in tables:
        for grid in grids:
            for part in split(grid):
                lines += ["", *table(section, part)]
    return "\n".join(lines) + "\n"


def split(grid: Grid) -> list[Grid]:
    """Splits a table into parts that fit on a page, all about equally wide."""
    count = math.ceil(len(grid.headings) / MOST)
    size = math.ceil(len(grid.headings) / max(count, 1))
    if count < 2:
        return [grid]
    parts = []
    for k in range(count):
        chosen = slice(k * size, (k + 1) * size)
        rows = tuple((label, cells[chosen]) for label, cells in grid.rows)
        name, title = f"{grid.name}-{k + 1}", f"{grid.title} ({k + 1} of {count})"
        parts.append(dataclasses.replace(grid, name=name, title=title, headings=grid.headings[chosen], rows=rows))
    return parts


def table(section: Section, grid: Grid) -> list[str]:
    """One table, with a caption and a label."""
    caption = f"{section.title}. {grid.title}. {grid.about}" + grid.where_papers_stand("in italics below ours")
    lines = [r"\begin{table}", r"\centering", r"\small", rf"\caption{{{tex(caption.strip())}}}"]
    lines += [rf"\label{{tab:{section.slug}-{grid.name}}}", FITTED]
    lines += [rf"\begin{{tabular}}{{l{'r' * len(grid.headings)}}}", r"\toprule"]
    lines += [line([tex(text) for text in (grid.first, *grid.headings)]), r"\midrule"]
    for label, cells in grid.rows:
        lines += rows(label, cells)
    return [*lines, r"\bottomrule", r"\end{tabular}}", r"\end{table}"]


def rows(label: str, cells: Sequence[Number]) -> list[str]:
    """A row with our numbers and, if the paper has any, rows below with its numbers and the differences."""
    ours = [rf"\textbf{{{tex(cell.ours)}}}" if cell.best else tex(cell.ours) for cell in cells]
    lines = [line([tex(label), *ours])]
    compared = [cell.paper is not None and cell.mean is not None for cell in cells]
    for name, texts in (
        ("paper", [cell.papers for cell in cells]),
        ("difference", [cell.difference for cell in cells]),
    ):
        shown = [text if known else "" for text, known in zip(texts, compared, strict=True)]
        if any(shown):
            lines.append(line([rf"\quad\textit{{{name}}}", *(rf"\textit{{{tex(t)}}}" if t else "" for t in shown)]))
    return lines


def line(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def tex(text: str) -> str:
    return "".join(SIGNS.get(character, character) for character in text)
