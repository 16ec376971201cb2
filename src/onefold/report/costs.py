"""Tables of costs: training time, and time per image."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

from onefold.paper import Entry
from onefold.report.answers import Answers
from onefold.report.compare import of_paper
from onefold.report.grid import Grid, Line, Number, number
from onefold.report.table import Row, Section

UNITS = (("h", 3600.0), ("min", 60.0), ("s", 1.0))
SHORT = (("s", 0.001), ("ms", 1.0), ("µs", 1000.0))  # units per millisecond
FIGURES = 3  # significant digits of a time

WHAT = {"single": ("single",), "ensemble": ("ensemble",)}
TOOK = (
    "Training time (for an ensemble, the sum over its teachers; for runs that shared a device, each run's share of the "
    "time)"
)
THROUGH = "and forward passes per image."


class Time(NamedTuple):
    """A measured time per image. Times on different devices are never averaged or compared."""

    device: str
    batch: int
    ms: float


def costs(section: Section) -> list[Grid]:
    """Training and inference in one table; in two if most rows have no inference times."""
    heading, trained = training(section)
    headings, asked = inferences(section)
    if trained and 2 * len(asked) >= len(trained):
        known, empty = dict(asked), (Number(None),) * len(headings)
        both = {
            row.label: trained.get(row.label, Number(None)) for row in section.rows if row.label in {*trained, *known}
        }
        lines = [(label, (cell, *known.get(label, empty))) for label, cell in both.items()]
        return [table(section, "costs", "Run time", (heading, *headings), lines, f"{TOOK}, inference time, {THROUGH}")]
    return [
        table(
            section,
            "costs",
            "Training time",
            (heading,),
            [(label, (cell,)) for label, cell in trained.items()],
            f"{TOOK}, {THROUGH}",
        ),
        table(section, "costs-inference", "Inference time", headings, asked, f"Inference time, {THROUGH}"),
    ]


def table(
    section: Section, name: str, title: str, headings: tuple[str, ...], lines: Sequence[Line], caption: str
) -> Grid:
    """A table of costs, with the number of passes as the last column."""
    passes = {row.label: Number(float(row.first.passes), digits=0) for row in section.rows}
    rows = tuple((label, (*cells, passes[label])) for label, cells in lines)
    devices = dict.fromkeys(
        a.measurements.costs.device for r in section.rows for a in r.answers if a.measurements.costs
    )
    caption += f" Measured on {'; '.join(devices)}." if devices else ""
    machines = dict.fromkeys(a.env.get("gpu") or a.env.get("processor") for row in section.rows for a in row.answers)
    if len(named := [str(machine) for machine in machines if machine]) > 1:
        caption += f" Trained on {'; '.join(named)}: training times compare only on the same device."
    caption += " The paper's times are from an RTX 3090." if any(c.paper for _, cells in rows for c in cells) else ""
    return Grid(name, title, (*headings, "passes"), rows, caption)


def training(section: Section) -> tuple[str, dict[str, Number]]:
    """The heading of the column, and the cell of each row."""
    seconds = {row.label: [a.seconds for a in row.answers if a.seconds is not None] for row in section.rows}
    papers = {row.label: of_paper(row.first, table="costs").get("hours") for row in section.rows}
    longest = max((value for each in seconds.values() for value in each), default=0.0)
    # If the paper has numbers, use hours, its unit.
    fitting = [(u, s) for u, s in UNITS if longest >= s or any(papers.values())]
    unit, length = fitting[0] if fitting else UNITS[-1]
    cells = {label: timed(each, 1 / length, papers[label]) for label, each in seconds.items() if each}
    return f"training, {unit}", cells


def inferences(section: Section) -> tuple[tuple[str, ...], list[Line]]:
    """The headings, one for each batch size and device, and the rows that were measured."""
    measured = {
        row.label: [each for a in row.answers for each in inference(a)] or in_passing(section, row)
        for row in section.rows
    }
    every = [time for times in measured.values() for time in times]
    devices, batches = list(dict.fromkeys(t.device for t in every)), sorted({t.batch for t in every})
    headings, columns = [], []
    for device, batch in itertools.product(devices, batches):
        longest = max((t.ms for t in every if (t.device, t.batch) == (device, batch)), default=None)
        if longest is None:
            continue
        unit, many = next(((u, n) for u, n in SHORT if longest * n >= 1), SHORT[-1])
        headings.append(f"{unit}/image, batch {batch}" + (f" on {device}" if len(devices) > 1 else ""))
        cells = {}
        for row in section.rows:
            entry = of_paper(row.first, table="costs").get("ms") if batch == batches[-1] else None
            paper = dataclasses.replace(entry, mean=many * entry.mean) if entry is not None else None
            chosen = [t.ms for t in measured[row.label] if (t.device, t.batch) == (device, batch)]
            cells[row.label] = timed(chosen, many, paper)
        columns.append(cells)
    lines = [(row.label, tuple(cells[row.label] for cells in columns)) for row in section.rows if measured[row.label]]
    return tuple(headings), lines


def timed(values: Sequence[float], scale: float, paper: Entry | None) -> Number:
    """A number with three significant digits."""
    made = number(values, 0, scale, paper)
    if not made.mean:
        return made
    return dataclasses.replace(made, digits=max(0, FIGURES - 1 - math.floor(math.log10(abs(made.mean)))))


def inference(answer: Answers) -> list[Time]:
    """The times of what is served: for a BE student all its members, for other students the single network."""
    wanted = WHAT.get(answer.kind, ("be",) if answer.method == "be" else ("collapsed", "single"))
    return next((found for what in wanted if (found := times_of(answer, what))), [])


def times_of(answer: Answers, what: str) -> list[Time]:
    measured = answer.measurements.costs
    if measured is None:
        return []
    return [Time(measured.device, batch, ms) for kind, batch, ms in measured.inference if kind == what]


def in_passing(section: Section, row: Row) -> list[Time]:
    """Times of single networks and ensembles that were measured along with those of ensembles and students."""
    kind = row.first.kind
    if kind == "student":
        return []
    others = [a for each in section.rows for a in each.answers if a.kind != "single"]
    # An ensemble is measured along with students of as many teachers, a single network along with any of them.
    beside = [a for a in others if kind == "single" or a.members == row.first.members]
    times = [time for a in beside for time in times_of(a, kind)]
    return times if kind == "ensemble" else by_ensembles(section) or times


def by_ensembles(section: Section) -> list[Time]:
    return [time for each in section.of_kind("ensemble") for a in each.answers for time in times_of(a, "single")]
