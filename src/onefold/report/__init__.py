"""Tables and pictures from run folders alone: no data, no GPU, no engine."""

from onefold.report.page import page, report
from onefold.report.runs import SPEED, Answers, collect
from onefold.report.table import COLUMNS, Column, Row, Section, cell, headings, rows, sections

__all__ = [
    "COLUMNS",
    "SPEED",
    "Answers",
    "Column",
    "Row",
    "Section",
    "cell",
    "collect",
    "headings",
    "page",
    "report",
    "rows",
    "sections",
]
