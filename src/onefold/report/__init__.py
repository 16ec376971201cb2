"""Tables and pictures from run folders only: needs no data, no GPU, no engine."""

from onefold.report.answers import SPEED, Answers
from onefold.report.grid import Grid, Number
from onefold.report.grids import grids
from onefold.report.runs import collect
from onefold.report.table import COLUMNS, Column, Row, Section, cell, headings, rows, sections
from onefold.report.words import sentences
from onefold.report.write import report

__all__ = [
    "COLUMNS",
    "SPEED",
    "Answers",
    "Column",
    "Grid",
    "Number",
    "Row",
    "Section",
    "cell",
    "collect",
    "grids",
    "headings",
    "report",
    "rows",
    "sections",
    "sentences",
]
