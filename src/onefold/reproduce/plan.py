"""A table of the paper as a list of runs, with recipe, folder, state and cost."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from onefold.engine.cost.passes import passes_of_step
from onefold.engine.from_recipe import places
from onefold.names import unknown
from onefold.recipe import Recipe, to_dict
from onefold.reproduce.tables import Setting, Table
from onefold.run import RunFolder

TEACHERS = "teachers"


@dataclass(frozen=True)
class Task:
    """One run: teacher `member`, or a student if that is None."""

    recipe: Recipe
    row: str
    run: Path
    teachers: Path
    member: int | None = None

    @property
    def title(self) -> str:
        if self.member is not None:
            return f"{self.recipe.name}, teacher {self.member}"
        return f"{self.recipe.name}, {self.row} of {self.recipe.members}, seed {self.recipe.seed}"

    @property
    def passes(self) -> int:
        """The cost of the whole run, in forward passes over the training images."""
        return self.recipe.epochs * passes_of_step(self.recipe, student=self.member is None)

    @property
    def finished(self) -> bool:
        return RunFolder(self.run).finished

    @property
    def needs(self) -> list[Path]:
        """Runs that have to be finished before this one can start."""
        if self.member is not None:
            return []
        return [self.teachers / f"teacher-{m}" for m in range(self.recipe.members)]

    def check(self) -> None:
        """Refuses a folder that was started with another recipe."""
        run = RunFolder(self.run)
        run.check_same(to_dict(self.recipe), run.about | places(self.recipe))

    def state(self) -> tuple[str, float]:
        """The state in words, and the share that is done."""
        run = RunFolder(self.run)
        if run.finished:
            return "done", 1.0
        steps = run.about.get("steps") if run.started else None
        try:
            reached = max((line["step"] for line in run.metrics()), default=0)
        except (ValueError, LookupError, TypeError):
            reached = 0
        if not steps or not reached:
            return "to do", 0.0
        return f"at step {reached:,} of {steps:,}", reached / steps


@dataclass(frozen=True)
class Changes:
    """Which part of a table is run, and changes to its recipes."""

    rows: tuple[str, ...] = ()
    members: tuple[int, ...] = ()
    seeds: int | None = None
    epochs: int | None = None
    device: str = "auto"
    precision: str | None = None
    root: str | None = None
    download: bool = False


def tasks_of(table: Table, out: Path, changes: Changes) -> list[Task]:
    """All runs of a table: for each setting, first the teachers, then the rows in the order of the table."""
    check_rows(table, changes)
    tasks = []
    for setting in table.settings:
        recipe = changed(setting, changes)
        home = out / folder_name(recipe, setting)
        rows = [row for row in setting.rows if chosen(row.name, changes.rows, row.members, changes.members)]
        all_teachers = not changes.members and (not changes.rows or TEACHERS in changes.rows)
        most = max((row.members for row in rows), default=0)
        count = max(setting.needed, most) if all_teachers else most
        if TEACHERS in changes.rows and changes.members:
            count = max(count, *changes.members)
        folder = home / TEACHERS
        tasks += [
            Task(as_begun(recipe, run), TEACHERS, run, folder, m)
            for m in range(min(count, setting.teachers))
            for run in [folder / f"teacher-{m}"]
        ]
        for row in rows:
            for seed in range(table.seeds if changes.seeds is None else changes.seeds):
                run = home / f"seed-{seed}" / f"{row.name}-of-{row.members}"
                tasks.append(Task(as_begun(row.recipe(recipe, seed), run), row.name, run, folder))
    return tasks


def as_begun(recipe: Recipe, run: Path) -> Recipe:
    """The recipe with `eval_every` and `eval_last` of the run if it was already started: older runs have others."""
    folder = RunFolder(run)
    try:
        before = folder.recipe if folder.started else {}
    except ValueError:  # the error is reported when the run is resumed
        return recipe
    names = {"eval_every": recipe.eval_every, "eval_last": 1 if before else recipe.eval_last}
    found = {name: before.get(name, default) for name, default in names.items()}
    if not all(isinstance(count, int) and count > 0 for count in found.values()):
        return recipe
    return dataclasses.replace(recipe, **found)


def check_rows(table: Table, changes: Changes) -> None:
    known = [TEACHERS, *dict.fromkeys(row.name for setting in table.settings for row in setting.rows)]
    for name in changes.rows:
        if name not in known:
            raise ValueError(f"--rows: {unknown(name, known)}")
    sizes = sorted({row.members for setting in table.settings for row in setting.rows})
    for members in changes.members:
        if members not in sizes:
            raise ValueError(f"--members: expected some of {', '.join(map(str, sizes))}, got {members}")
    if changes.seeds is not None and changes.seeds < 1:
        raise ValueError(f"--seeds: expected at least 1, got {changes.seeds}")


def chosen(name: str, names: Sequence[str], members: int, sizes: Sequence[int]) -> bool:
    return (not names or name in names) and (not sizes or members in sizes)


def changed(setting: Setting, changes: Changes) -> Recipe:
    """The recipe for the teachers of a setting. Its `members` are those of all tables together, which share them."""
    recipe = dataclasses.replace(setting.recipe(), members=setting.teachers, device=changes.device)
    data = dataclasses.replace(recipe.data, download=changes.download)
    if changes.root is not None:
        data = dataclasses.replace(data, root=changes.root)
    recipe = dataclasses.replace(recipe, data=data)
    if changes.precision is not None:
        recipe = dataclasses.replace(recipe, precision=changes.precision)  # type: ignore[arg-type]
    if changes.epochs is not None:
        # Shorten the warm-up with the epochs.
        warmup = min(recipe.optim.warmup_epochs, changes.epochs / 10)
        optim = dataclasses.replace(recipe.optim, warmup_epochs=warmup)
        recipe = dataclasses.replace(recipe, epochs=changes.epochs, optim=optim)
    return recipe


def folder_name(recipe: Recipe, setting: Setting) -> str:
    """Runs with another number of epochs get separate folders."""
    return recipe.name if recipe.epochs == setting.recipe().epochs else f"{recipe.name}-{recipe.epochs}-epochs"
