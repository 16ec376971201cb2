"""A table of numbers, independent of its format: HTML, Markdown, CSV or LaTeX."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from onefold.paper import Entry
from onefold.report.compare import units

NONE = "–"
PLUS_MINUS, SIGMA, MINUS = "\u00a0±\u00a0", "\u00a0σ", "\u2212"  # non-breaking spaces keep a number with its deviation


@dataclass(frozen=True)
class Number:
    """A mean over some networks, and the paper's corresponding number; all in the units that are shown."""

    mean: float | None
    deviation: float | None = None
    digits: int = 4
    paper: Entry | None = None
    best: bool = False  # of all students in its column

    @property
    def text(self) -> str:
        if self.mean is None or math.isnan(self.mean):
            return NONE
        return f"{self.mean:.{self.digits}f}".replace("-", MINUS)

    @property
    def spread(self) -> str:
        return "" if self.deviation is None else f"{self.deviation:.{self.digits}f}"

    @property
    def ours(self) -> str:
        """Mean and deviation on one line."""
        return self.text + (f"{PLUS_MINUS}{self.spread}" if self.spread else "")

    @property
    def papers(self) -> str:
        """The paper's number with its deviation, as printed there."""
        if self.paper is None:
            return ""
        if self.paper.metric.startswith("inference"):  # may have been converted to another unit
            return f"{self.paper.mean:.3g}"
        digits = 2 if self.paper.metric == "ACC" else 1 if self.paper.metric.startswith("train") else 3
        deviation = "" if self.paper.std is None else f"{PLUS_MINUS}{self.paper.std:.{digits}f}"
        return f"{self.paper.mean:.{digits}f}{deviation}"

    @property
    def in_deviations(self) -> float | None:
        return None if self.paper is None or self.mean is None else units(self.mean, self.paper)

    @property
    def difference(self) -> str:
        """Ours minus the paper's, in its standard deviations; if it gives none, absolute; for times, the ratio."""
        if self.paper is None or self.mean is None:
            return ""
        counted = self.in_deviations
        if counted is not None:
            return f"{counted:+.1f}{SIGMA}".replace("-", MINUS)
        if self.paper.metric.endswith("rtx3090"):  # times of another GPU
            return f"{self.paper.mean / self.mean:.3g} times as fast" if self.mean > 0 else ""
        digits = 2 if self.paper.metric == "ACC" else 3
        return f"{self.mean - self.paper.mean:+.{digits}f}".replace("-", MINUS)

    @property
    def combined(self) -> float | None:
        """Ours minus the paper's, in units of both standard deviations combined; None if one of them is unknown."""
        if self.mean is None or self.paper is None or self.paper.std is None or not self.deviation:
            return None
        return (self.mean - self.paper.mean) / math.hypot(self.deviation, self.paper.std)


def number(values: Sequence[float], digits: int = 4, scale: float = 1, paper: Entry | None = None) -> Number:
    """Mean and sample standard deviation of some values."""
    if not values:
        return Number(None, digits=digits)
    deviation = scale * statistics.stdev(values) if len(values) > 1 else None
    return Number(scale * statistics.fmean(values), deviation, digits, paper)


Line = tuple[str, tuple[Number, ...]]


def with_best(lines: Sequence[Line], among: Collection[str], better: Sequence[str]) -> tuple[Line, ...]:
    """Marks the best of some rows in each column, and all that look the same when rounded; `better` is "higher" or
    "lower" for each column."""
    marked = [list(cells) for _, cells in lines]
    chosen = [place for place, (label, _) in enumerate(lines) if label in among]
    for column, way in enumerate(better):
        known = [(marked[place][column].mean or 0.0, place) for place in chosen if marked[place][column].text != NONE]
        if len(known) < 2:
            continue
        _, best = max(known) if way == "higher" else min(known)
        for _, place in known:
            if marked[place][column].text == marked[best][column].text:
                marked[place][column] = dataclasses.replace(marked[place][column], best=True)
    return tuple((label, tuple(cells)) for (label, _), cells in zip(lines, marked, strict=True))


@dataclass(frozen=True)
class Grid:
    """A table: rows of numbers under headings. `name` is used for files and anchors."""

    name: str
    title: str
    headings: tuple[str, ...]
    rows: tuple[Line, ...]
    caption: str = ""
    first: str = "network"
    folded: bool = False  # collapsed on the page until it is clicked
    other_images: bool = False  # measured on images other than the paper's, so that the numbers do not have to agree

    @property
    def about(self) -> str:
        """The caption, and an explanation of bold numbers."""
        bold = any(cell.best for _, cells in self.rows for cell in cells)
        return self.caption + (" Bold: the best of the students." if bold else "")

    def where_papers_stand(self, place: str) -> str:
        """A sentence for the caption on where the paper's numbers are shown; empty if there are none."""
        compared = [
            cell for _, cells in self.rows for cell in cells if cell.paper is not None and cell.mean is not None
        ]
        if not compared:
            return ""
        known = any(cell.in_deviations is not None for cell in compared)
        unit = " in units of the paper's standard deviation (σ), where it gives one" if known else ""
        return f" The paper's numbers are {place}, with the difference{unit}."
