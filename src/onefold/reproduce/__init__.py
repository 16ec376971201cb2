"""Reproduces the paper's tables: trains and measures what is missing, keeps what is done, and writes a report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from onefold.report import Section, report
from onefold.reproduce.carry import Clock, Outcome, Stage, carry_out
from onefold.reproduce.measuring import Measuring, measure_all, measurings_of
from onefold.reproduce.plan import Changes, Task, tasks_of
from onefold.reproduce.tables import TABLES, Table

__all__ = [
    "TABLES",
    "Changes",
    "Clock",
    "Measuring",
    "Outcome",
    "Reproduced",
    "Stage",
    "Table",
    "Task",
    "measurings_of",
    "reproduce",
    "tasks_of",
]


@dataclass(frozen=True)
class Reproduced:
    """The outcome of the runs, and the report on all that are there."""

    outcome: Outcome
    page: Path | None
    sections: list[Section]


def reproduce(
    name: str,
    out: Path | str,
    *,
    stage: Stage,
    changes: Changes | None = None,
    at_once: int | None = None,
    minutes: float | None = None,
    table: Table | None = None,
) -> Reproduced:
    """Trains the runs of a table that are missing, measures what is missing, and writes `out/NAME.html`.

    After an interruption at any time, the same call resumes. With `minutes`, it stops by itself with everything saved,
    and reports on what there is by then.
    """
    if at_once is not None and at_once < 1:
        raise ValueError(f"--at-once: expected at least 1, got {at_once}")
    if minutes is not None and not minutes > 0:
        raise ValueError(f"--minutes: expected a positive number, got {minutes}")
    clock = Clock(minutes)
    out = Path(out).expanduser()
    table = TABLES[name] if table is None else table
    tasks = tasks_of(table, out, changes or Changes())
    if not tasks:
        raise ValueError("--rows, --members: expected at least one run of the table, got none")
    for task in tasks:
        task.check()
    outcome = carry_out(tasks, at_once=at_once, clock=clock, stage=stage)
    if not outcome.stopped:
        measure_all(measurings_of(table, tasks), clock=clock, stage=stage, outcome=outcome)
    homes = dict.fromkeys(task.teachers.parent for task in tasks)
    folders = [folder for folder in homes if any(folder.rglob("recipe.json"))]
    if not folders:
        return Reproduced(outcome, None, [])
    page, sections = report(folders, out / f"{name}.html", title=f"The paper's table {name}")
    return Reproduced(outcome, page, sections)
