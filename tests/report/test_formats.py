"""Numbers in a line of text, and tables as LaTeX."""

from __future__ import annotations

import dataclasses
import math
import re

import pytest

from onefold.paper import found
from onefold.report import Grid, Section
from onefold.report.formats import markdown_table, rounded, worded
from onefold.report.grid import Number, with_best
from onefold.report.latex import MOST, latex, split

ROWS = (("a", 9.0, 0.0, None), ("b", 1.0, 0.2, None), ("c", 2.0, 0.3, 1.0), ("d", math.nan, 0.20001, None))
PAPER = found("CIFAR-10", "WRN28x1", "KD", "DE-4")  # accuracy 93.70 ± 0.10


def test_a_number_and_its_deviation_stand_on_one_line() -> None:
    text = worded(Number(93.4, 0.2, 2, PAPER["ACC"]))
    assert text == "93.40\u00a0±\u00a00.20 (paper 93.70\u00a0±\u00a00.10, \u22123.0\u00a0σ)"
    assert worded(Number(-0.5, digits=1)) == "\u22120.5"
    assert worded(Number(None, paper=PAPER["ACC"])) == "–"


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (57.49999999999999, "57.5"),
        (0.1 + 0.2, "0.3"),
        (93.40625, "93.40625"),
        (0.0123456789, "0.01234568"),
        (3.2e-9, "3.2e-09"),
        (7200.0, "7200.0"),
        (math.nan, "nan"),
    ],
)
def test_csv_has_the_digits_that_are_known(number: float, text: str) -> None:
    assert rounded(number) == text


def test_deviations_of_both_are_combined() -> None:
    assert Number(93.4, 0.2, 2, PAPER["ACC"]).combined == pytest.approx(-0.3 / math.sqrt(0.2**2 + 0.1**2))
    assert Number(93.4, None, 2, PAPER["ACC"]).combined is None
    assert Number(93.4, 0.0, 2, PAPER["ACC"]).combined is None
    assert Number(93.4, 0.2, 2).combined is None


def grid(columns: int, paper: bool = True) -> Grid:
    headings = tuple(f"m_{k} ↓" for k in range(columns))
    ours = tuple(Number(93.4 + k, 0.2, 2, PAPER["ACC"] if paper and not k else None) for k in range(columns))
    return Grid("results", "Results", headings, (("KD & more", ours), ("none", (Number(None),) * columns)), "100%.")


SECTION = Section("cifar10", "wrn28x1", ())


def test_latex_has_the_papers_numbers_below_ours_and_says_so() -> None:
    text = latex("t", [(SECTION, [grid(3)], [])], ["a_note"])
    lines = [line.removesuffix(r"\\") for line in text.splitlines() if line.endswith(r"\\")]
    cells = [[cell.strip() for cell in line.split(" & ")] for line in lines]
    assert cells == [
        ["network", r"m\_0 $\downarrow$", r"m\_1 $\downarrow$", r"m\_2 $\downarrow$"],
        [r"KD \& more", r"93.40~$\pm$~0.20", r"94.40~$\pm$~0.20", r"95.40~$\pm$~0.20"],
        [r"\quad\textit{paper}", r"\textit{93.70~$\pm$~0.10}", "", ""],
        [r"\quad\textit{difference}", r"\textit{$-$3.0~$\sigma$}", "", ""],
        ["none", "--", "--", "--"],
    ]
    assert r"\label{tab:cifar10-wrn28x1-results}" in text
    assert "The paper's numbers are in italics below ours, with the difference in units of the pap" in text
    for opened, closed in (("{", "}"), (r"\begin{", r"\end{")):
        assert text.replace(r"\{", "").replace(r"\}", "").count(opened) == text.count(closed)
    assert "The paper's" not in latex("t", [(SECTION, [grid(3, paper=False)], [])], [])


@pytest.mark.parametrize(("columns", "sizes"), [(1, [1]), (MOST, [MOST]), (11, [6, 5]), (8, [4, 4]), (13, [5, 5, 3])])
def test_wide_tables_are_several(columns: int, sizes: list[int]) -> None:
    whole, parts = grid(columns), split(grid(columns))
    assert [len(part.headings) for part in parts] == sizes
    assert tuple(heading for part in parts for heading in part.headings) == whole.headings
    for k, (label, cells) in enumerate(whole.rows):
        assert all(part.rows[k][0] == label for part in parts)
        assert tuple(cell for part in parts for cell in part.rows[k][1]) == cells
    text = latex("t", [(SECTION, [whole], [])], [])
    labels = re.findall(r"\\label\{([^}]*)\}", text)
    assert len(set(labels)) == len(parts)


def test_folded_tables_open_at_a_click() -> None:
    lines = markdown_table(dataclasses.replace(grid(2), title="A & B", folded=True))
    assert lines[:3] == ["<details>", "<summary>A &amp; B</summary>", ""]  # without the empty line it were no table
    assert lines[-3:] == ["", "</details>", ""]
    assert "### Results" in markdown_table(grid(2))
    assert "<details>" not in markdown_table(grid(2))


def test_the_best_of_some_are_marked() -> None:
    lines = [(name, tuple(Number(value) for value in values)) for name, *values in ROWS]
    marked = with_best(lines, ["b", "c", "d"], ["higher", "lower", "lower"])
    assert [[cell.best for cell in cells] for _, cells in marked] == [
        [False, False, False],
        [False, True, False],
        [True, False, False],
        [False, True, False],  # nobody sees that it is more
    ]
    assert not any(cell.best for _, cells in with_best(lines, ["b"], ["higher"] * 3) for cell in cells)
    assert worded(Number(0.5, 0.1, 1, best=True)) == "**0.5**\u00a0±\u00a00.1"
    text = "\n".join(markdown_table(Grid("r", "R", ("x", "y", "z"), marked)))
    assert "Bold: the best of the students." in text


def test_markdown_says_where_the_papers_numbers_stand() -> None:
    assert any("are in parentheses after ours" in line for line in markdown_table(grid(2)))
    assert not any("The paper's" in line for line in markdown_table(grid(2, paper=False)))
