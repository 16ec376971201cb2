"""Where a table of the paper stands: of every row what came out, what is under way, and what the paper has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from onefold.paper import Entry
from onefold.report.answers import METHODS, PERTURBATIONS
from onefold.report.compare import departures, in_paper, names
from onefold.report.grid import Number
from onefold.report.grids import metrics_of
from onefold.report.table import Column, Row, Section
from onefold.reproduce.plan import Changes, Task, tasks_of
from onefold.reproduce.tables import Table
from onefold.run import RunFolder

NEAR = 2.0  # of the paper's deviations
PRINTED = {"acc": 0.005}  # half of the last digit the paper prints; of other metrics 0.0005


@dataclass(frozen=True, eq=False)
class Standing:
    """A row of students. `row` is None where no run of it is finished."""

    label: str
    row: Row | None
    paper: dict[str, Entry]
    going: tuple[str, ...]  # unfinished runs: who, and how far

    @property
    def state(self) -> str:
        """In words: seeds that are done, and what is going on."""
        done = [] if self.row is None else [f"{self.row.networks} seed{'s' if self.row.networks > 1 else ''}"]
        return "; ".join([*done, *(f"in progress: {one}" for one in self.going)]) or "not run yet"

    def numbers(self, columns: Sequence[Column]) -> tuple[Number, ...]:
        """Ours with the paper's beside; the paper's alone where there is none of ours."""
        if self.row is None:
            return tuple(Number(None, paper=self.paper.get(column.key)) for column in columns)
        return metrics_of(self.row, columns)


def near(cell: Number, column: Column) -> bool:
    """Whether ours is within two deviations of the paper's, or better; without a deviation, to the digits it prints."""
    if cell.mean is None or cell.paper is None:
        return False
    room = NEAR * cell.paper.std if cell.paper.std else PRINTED.get(column.key, 0.0005)
    worse = cell.paper.mean - cell.mean if column.better == "higher" else cell.mean - cell.paper.mean
    return worse <= room


def by_nll(every: Sequence[Standing]) -> list[str]:
    """A sentence on the order of the methods by NLL, ours and the paper's, where there are two."""
    done = {one.label: (one.row.mean("nll") or 0.0, one.paper["nll"].mean) for one in every if one.row and one.paper}
    if len(done) < 2:
        return []
    ours = sorted(done, key=lambda label: done[label][0])
    papers = sorted(done, key=lambda label: done[label][1])
    told = "which is the paper's order" if ours == papers else f"in the paper {', '.join(papers)}"
    return [f"By NLL, the best first: {', '.join(ours)}; {told}."]


def standings(table: Table, out: Path, members: int, sections: Sequence[Section]) -> list[Standing]:
    """The students of so many teachers, a row for each method of the table, in its order."""
    found: dict[str, list[Task]] = {}
    for task in tasks_of(table, out, Changes(members=(members,))):
        if task.member is None:
            found.setdefault(task.row, []).append(task)
    return [standing(tasks, sections) for tasks in found.values()]


def standing(tasks: Sequence[Task], sections: Sequence[Section]) -> Standing:
    recipe = tasks[0].recipe
    distill = recipe.distill
    kind = ("student", distill.method, distill.perturbation, recipe.members)
    rows = [
        row
        for section in sections
        if (section.data, section.network) == (recipe.data.source, recipe.network)
        for row in section.rows
        if (row.first.kind, row.first.method, row.first.perturbation, row.first.members) == kind
        and departures(row.first) == []
    ]
    going = [f"seed {task.recipe.seed} at {reached(task)}" for task in tasks if under_way(task)]
    label = METHODS.get(distill.method, distill.method) + PERTURBATIONS[distill.perturbation]
    paper = in_paper(recipe.data.source, recipe.network, names(*kind))
    return Standing(label, rows[0] if rows else None, paper, tuple(going))


def teachers_going(table: Table, out: Path, members: int) -> list[str]:
    """Every one of the first teachers that is not finished, and how far it is."""
    tasks = [task for task in tasks_of(table, out, Changes(members=(members,))) if task.member is not None]
    told = [(task, f"in progress: {reached(task)}" if under_way(task) else "not run yet") for task in tasks]
    return [f"teacher {task.member} {state}" for task, state in told if not task.finished]


def under_way(task: Task) -> bool:
    return RunFolder(task.run).started and not task.finished


def reached(task: Task) -> str:
    try:
        epoch = max((int(line.get("epoch", 0)) for line in RunFolder(task.run).metrics()), default=0)
    except (ValueError, TypeError, AttributeError):
        epoch = 0
    return f"epoch {epoch} of {task.recipe.epochs}"
