"""The state of a table of the paper: for every row our results, runs in progress, and the paper's numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from onefold.paper import Entry
from onefold.recipe import Recipe
from onefold.report.answers import METHODS, PERTURBATIONS
from onefold.report.compare import departures, in_paper, names
from onefold.report.grid import Number
from onefold.report.grids import metrics_of
from onefold.report.table import Column, Row, Section
from onefold.reproduce.plan import Changes, Task, tasks_of
from onefold.reproduce.tables import Table
from onefold.run import RunFolder

Kind = tuple[str, str, str, int]  # kind, method, perturbation and members of answers
NEAR = 2.0  # in the paper's standard deviations


@dataclass(frozen=True, eq=False)
class Standing:
    """A row of the paper. `row` is ours, or None if no run of it is finished."""

    label: str
    unit: str  # what a row is the mean over: "seed", "network" or "ensemble"
    row: Row | None
    paper: dict[str, Entry]
    going: tuple[str, ...]  # runs that are missing from the row: which, and how far they are

    @property
    def state(self) -> str:
        """In words: what is done, and what is in progress."""
        count = 0 if self.row is None else self.row.networks
        done = [f"{count} {self.unit}{'s' if count > 1 else ''}"] if count else []
        return "; ".join([*done, *self.going]) or "not run yet"

    def numbers(self, columns: Sequence[Column]) -> tuple[Number, ...]:
        """Our numbers together with the paper's; only the paper's if there are none of ours."""
        if self.row is None:
            return tuple(Number(None, paper=self.paper.get(column.key)) for column in columns)
        return metrics_of(self.row, columns)


def near(cell: Number, column: Column) -> bool | None:
    """Whether our number is within two deviations of the paper's, or better; None if there is none, or no deviation."""
    distance = cell.in_deviations
    return None if distance is None else (-distance if column.better == "higher" else distance) <= NEAR


def short_of(every: Sequence[Standing], columns: Sequence[Column]) -> list[str]:
    """A sentence on the numbers that are worse than the paper's by more than two of its deviations."""
    missed = []
    for one in every:
        for cell, column in zip(one.numbers(columns), columns, strict=True):
            if near(cell, column) is False and cell.mean is not None and cell.paper is not None:
                both = "" if cell.combined is None else f", {abs(cell.combined):.1f} combined deviations away"
                missed.append(f"{one.label} in {column.title} ({cell.ours} vs. {cell.papers}{both})")
    told = " A combined deviation is √(ours² + the paper's²)." if any("combined" in each for each in missed) else ""
    worse = "Worse than the paper by more than two of its standard deviations"
    return [f"{worse}: {'; '.join(missed)}.{told}"] if missed else []


def by_nll(every: Sequence[Standing]) -> list[str]:
    """A sentence on the order of the methods by NLL, ours and the paper's, if there are at least two."""
    done = {one.label: (one.row.mean("nll") or 0.0, one.paper["nll"].mean) for one in every if one.row and one.paper}
    if len(done) < 2:
        return []
    ours = sorted(done, key=lambda label: done[label][0])
    papers = sorted(done, key=lambda label: done[label][1])
    told = "which is the paper's order" if ours == papers else f"in the paper: {', '.join(papers)}"
    return [f"By NLL, best first: {', '.join(ours)}; {told}."]


def standings(table: Table, out: Path, members: int, sections: Sequence[Section]) -> list[Standing]:
    """The students of `members` teachers, a row for each method of the table, in its order."""
    found: dict[str, list[Task]] = {}
    for task in tasks_of(table, out, Changes(members=(members,))):
        if task.member is None:
            found.setdefault(task.row, []).append(task)
    made = []
    for tasks in found.values():
        recipe, distill = tasks[0].recipe, tasks[0].recipe.distill
        kind = ("student", distill.method, distill.perturbation, recipe.members)
        label = METHODS.get(distill.method, distill.method) + PERTURBATIONS[distill.perturbation]
        going = [told for task in tasks if (told := lacking(task, f"seed {task.recipe.seed}"))]
        made.append(standing(label, "seed", recipe, kind, going, sections))
    return made


def teachers_standings(table: Table, out: Path, members: int, sections: Sequence[Section]) -> list[Standing]:
    """DE-1 to DE-M: the mean over single networks, and the ensembles of the first ones."""
    tasks = [task for task in tasks_of(table, out, Changes(members=(members,))) if task.member is not None]
    made = []
    for m in range(1, members + 1):
        kind = ("single" if m == 1 else "ensemble", "supervised", "none", m)
        among = tasks if m == 1 else tasks[:m]
        going = [told for task in among if (told := lacking(task, f"teacher {task.member}"))]
        unit = "network" if m == 1 else "ensemble"
        made.append(standing(f"DE-{m}", unit, tasks[0].recipe, kind, going, sections))
    return made


def standing(
    label: str, unit: str, recipe: Recipe, kind: Kind, going: Sequence[str], sections: Sequence[Section]
) -> Standing:
    """The standing of a row, with our results under the paper's recipe, and the paper's numbers."""
    rows = [
        row
        for section in sections
        if (section.data, section.network) == (recipe.data.source, recipe.network)
        for row in (*section.rows, *section.sizes)
        if (row.first.kind, row.first.method, row.first.perturbation, row.first.members) == kind
        and departures(row.first) == []
    ]
    paper = in_paper(recipe.data.source, recipe.network, names(*kind))
    return Standing(label, unit, rows[0] if rows else None, paper, tuple(going))


def lacking(task: Task, who: str) -> str:
    """A note about a run that was started but does not contribute to its row yet; empty if there is nothing to say."""
    run = RunFolder(task.run)
    if run.finished:
        return "" if run.predictions_file("test").exists() else f"{who} is finished, but has no predictions"
    if not run.started:
        return ""
    try:
        epoch = max((int(line.get("epoch", 0)) for line in run.metrics()), default=0)
    except (ValueError, TypeError, AttributeError):
        epoch = 0
    return f"in progress: {who} at epoch {epoch} of {task.recipe.epochs}"
