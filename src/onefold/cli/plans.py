"""What `onefold reproduce` would run, as tables on the terminal."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from onefold.cli.tables import needed
from onefold.reproduce import Measuring, Task


def row_table(tasks: Sequence[Task], measurings: Sequence[Measuring]) -> Table:
    """A line for each row of the paper's table: how much of it is done, and what all of it costs together."""
    table = plain_table("row", "done", "passes")
    rows: dict[str, list[Task]] = {}
    for task in tasks:
        rows.setdefault(row_of(task), []).append(task)
    for title, same in rows.items():
        unit = "seed" if same[0].member is None else "network"
        table.add_row(Text(title), progress(same, unit), f"{sum(task.passes for task in same):,}")
    measured: dict[str, list[Measuring]] = {}
    for each in measurings:
        measured.setdefault(f"{each.kind} of {row_of(each.task)}", []).append(each)
    for title, alike in measured.items():
        table.add_row(Text(title), f"{sum(each.done for each in alike)} of {len(alike)}", "")
    table.add_section()
    table.add_row("all", progress(tasks, "run"), f"{sum(task.passes for task in tasks):,}")
    return table


def row_of(task: Task) -> str:
    name = task.recipe.name
    return f"{name}, teachers" if task.member is not None else f"{name}, {task.row} of {task.recipe.members}"


def progress(tasks: Sequence[Task], unit: str) -> str:
    """How many are done, and how many have been started."""
    done = sum(task.finished for task in tasks)
    begun = sum(0 < task.state()[1] < 1 for task in tasks)
    return f"{done} of {len(tasks)} {unit}{'s' * (len(tasks) > 1)}" + (f", {begun} started" if begun else "")


def run_table(tasks: Sequence[Task], measurings: Sequence[Measuring], width: int) -> Table:
    """Every run with its state, cost and folder, and the measurements that follow."""
    rows = [(task.title, task.state()[0], f"{task.passes:,}", shlex.quote(str(task.run))) for task in tasks]
    rows += [(each.title, "done" if each.done else "to do", "", shlex.quote(str(each.path))) for each in measurings]
    table = listed(rows, "run", "state", "passes", "folder")
    if needed(table) <= width:
        return table
    # Not enough width: put each folder on a line of its own, unbroken, so that it can be copied.
    return listed([(f"{title}\n  {folder}", *cells) for title, *cells, folder in rows], "run", "state", "passes")


def listed(rows: Sequence[Sequence[str]], *headings: str) -> Table:
    table = plain_table(*headings)
    for cells in rows:
        table.add_row(*map(Text, cells))
    return table


def plain_table(*headings: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for heading in headings:
        table.add_column(heading, justify="right" if heading == "passes" else "left", overflow="fold")
    return table


def told(tasks: Sequence[Task]) -> str:
    """How much work there is, and how much of it is left, in forward passes over the training images."""
    whole = sum(task.passes for task in tasks)
    left = sum(task.passes * (1 - task.state()[1]) for task in tasks)
    done = sum(task.finished for task in tasks)
    return (
        f"{len(tasks)} runs, {done} of them done; {left:,.0f} of {whole:,} passes left (a pass is one forward pass of "
        "all training images through one network; a backward pass counts as two)"
    )
