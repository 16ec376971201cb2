"""The runs of a plan, some at once on one device, until all are done or the time is over."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch

from onefold.data import Source
from onefold.engine import Diverged, Interrupted, Progress, Result
from onefold.engine.abreast import Going, Together, Value, abreast
from onefold.engine.device import device_named
from onefold.engine.distributed.world import ALONE
from onefold.engine.from_recipe import distilling, loaded, teaching
from onefold.engine.signals import ask_to_stop
from onefold.recipe import Recipe
from onefold.reproduce.plan import Task
from onefold.run import RunFolder

SMALL = re.compile(r"wrn\d+x1|mlp")  # networks that leave most of a GPU idle
AT_ONCE = 4


class Stage(Progress, Protocol):
    """Progress with a name that changes, also of work that is counted."""

    def title(self, text: str) -> None: ...

    def count(self, done: int, total: int, detail: str = "") -> None: ...


@dataclass
class Clock:
    """Says when the time is over; it never is, without minutes."""

    minutes: float | None = None
    begun: float = field(default_factory=time.monotonic)

    def over(self) -> bool:
        return self.minutes is not None and time.monotonic() - self.begun >= 60 * self.minutes


@dataclass
class Outcome:
    """What became of a plan."""

    stopped: bool = False
    failures: list[str] = field(default_factory=list)


def carry_out(tasks: Sequence[Task], *, at_once: int | None, clock: Clock, stage: Stage) -> Outcome:
    """Runs what is missing. A run that diverges is noted and the others go on; everything is saved in any case."""
    outcome = Outcome()
    todo = [task for task in tasks if not task.finished]
    sources: dict[str, Source] = {}  # all of them now: what is not there is not told after hours of other runs
    for task in () if clock.over() else todo:
        name = task.recipe.data.source
        sources[name] = sources[name] if name in sources else loaded(task.recipe, ALONE)
    for group in groups(todo, at_once):
        ready = [task for task in group if all(RunFolder(needed).finished for needed in task.needs)]
        outcome.failures += [f"{task.title}: its teachers are not there" for task in group if task not in ready]
        if clock.over():
            outcome.stopped = True
            break
        if not ready:
            continue
        done = sum(task.finished for task in tasks)
        names = ready[0].title if len(ready) == 1 else f"{ready[0].title} and {len(ready) - 1} more at once"
        stage.title(f"{done + 1} of {len(tasks)}: {names}")
        try:
            run_together(ready, sources[ready[0].recipe.data.source], clock, stage)
        except Interrupted:
            if not clock.over():
                raise
        except Diverged as failure:
            outcome.failures.append(f"{ready[0].title}: {failure}")
        if clock.over() and not all(task.finished for task in ready):
            outcome.stopped = True
            break
    return outcome


def run_together(tasks: Sequence[Task], source: Source, clock: Clock, stage: Stage) -> list[Result]:
    device = device_named(tasks[0].recipe.device)
    shared = Together(stage, len(tasks))
    said: list[Progress] = [stage] if len(tasks) == 1 else [shared.of(k, task.title) for k, task in enumerate(tasks)]
    each = [until(going(task, source, device, told), clock) for task, told in zip(tasks, said, strict=True)]
    return abreast(each, device)


def going(task: Task, source: Source, device: torch.device, progress: Progress) -> Going[Result]:
    """The run of a task, step by step."""
    if task.member is None:
        return distilling(task.recipe, task.run, task.teachers, source=source, progress=progress)
    return teaching(task.recipe, RunFolder(task.run), task.member, source, device, ALONE, progress)


def until(run: Going[Value], clock: Clock) -> Going[Value]:
    """The run as it is; when the time is over, it is asked to save itself and to stop."""
    while True:
        try:
            about_to_wait = next(run)
        except StopIteration as end:
            result: Value = end.value
            return result
        if clock.over():
            ask_to_stop()
        yield about_to_wait


def groups(tasks: Sequence[Task], at_once: int | None) -> Iterator[list[Task]]:
    """Runs of equal cost, so that those that go on together end together."""

    def alike(task: Task) -> tuple[str, str, int, bool]:
        return task.recipe.name, task.row, task.recipe.members, task.member is None

    for _, same in itertools.groupby(tasks, alike):
        kind = list(same)
        size = together(kind[0].recipe) if at_once is None else at_once
        for begin in range(0, len(kind), size):
            yield kind[begin : begin + size]


def together(recipe: Recipe) -> int:
    """How many runs a device takes at once, if nobody says."""
    return AT_ONCE if device_named(recipe.device).type == "cuda" and SMALL.fullmatch(recipe.network) else 1
