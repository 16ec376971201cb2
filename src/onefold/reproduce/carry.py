"""Carries out the runs of a plan, several at once on a device, until all are done or the time is up."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch

from onefold.data import Source
from onefold.engine import Diverged, Interrupted, Progress, Result
from onefold.engine.abreast import Going, Together, abreast
from onefold.engine.cost.at_once import ONE_BY_ONE
from onefold.engine.device import device_named
from onefold.engine.distributed.world import ALONE
from onefold.engine.from_recipe import distilling, loaded, side_by_side, teaching
from onefold.engine.signals import ask_to_stop
from onefold.reproduce.plan import Task
from onefold.run import RunFolder


class Stage(Progress, Protocol):
    """Progress with a title that can change, also of work that is not training steps."""

    def title(self, text: str) -> None: ...

    def count(self, done: int, total: int, detail: str = "") -> None: ...


@dataclass
class Clock:
    """Tells when the time is up; without `minutes`, it never is."""

    minutes: float | None = None
    begun: float = field(default_factory=time.monotonic)

    def over(self) -> bool:
        return self.minutes is not None and time.monotonic() - self.begun >= 60 * self.minutes


@dataclass
class Outcome:
    """The outcome of a plan."""

    stopped: bool = False
    failures: list[str] = field(default_factory=list)


def carry_out(tasks: Sequence[Task], *, at_once: int | None, clock: Clock, stage: Stage) -> Outcome:
    """Runs what is missing. If a run diverges, that is noted and the others continue; progress is always saved."""
    outcome = Outcome()
    todo = [task for task in tasks if not task.finished]
    sources: dict[str, Source] = {}  # load all of them now, so that missing data are not noticed only hours later
    for task in () if clock.over() else todo:
        name = task.recipe.data.source
        sources[name] = sources[name] if name in sources else loaded(task.recipe, ALONE)
    for group in groups(todo):
        ready = [task for task in group if all(RunFolder(needed).finished for needed in task.needs)]
        outcome.failures += [f"{task.title}: its teachers are not finished" for task in group if task not in ready]
        if clock.over():
            outcome.stopped = True
            break
        if not ready:
            continue
        work = Work(ready, sources[ready[0].recipe.data.source], clock, Heading(stage, tasks), outcome)
        try:
            run_together(work, at_once)
        except Interrupted:
            if not clock.over():
                raise
        if clock.over() and not all(task.finished for task in ready):
            outcome.stopped = True
            break
    return outcome


class Heading:
    """Shows which runs are in progress."""

    def __init__(self, stage: Stage, tasks: Sequence[Task]) -> None:
        self.stage, self.tasks = stage, tasks
        self.going: list[Task] = []

    def begun(self, task: Task) -> None:
        self.going.append(task)
        self.say()

    def ended(self, task: Task) -> None:
        self.going.remove(task)
        self.say()

    def say(self) -> None:
        if self.going:
            done = sum(task.finished for task in self.tasks)
            more = f" and {len(self.going) - 1} more at the same time" if len(self.going) > 1 else ""
            self.stage.title(f"{done + 1} of {len(self.tasks)}: {self.going[0].title}{more}")


@dataclass(frozen=True)
class Work:
    """Runs that may share a device, and the objects to which they report."""

    tasks: Sequence[Task]
    source: Source
    clock: Clock
    heading: Heading
    outcome: Outcome


def run_together(work: Work, at_once: int | None) -> None:
    """Trains as many runs at a time as suit the device; the next starts as soon as one has ended."""
    device = device_named(work.tasks[0].recipe.device)
    most = together(work, device) if at_once is None else at_once
    stage, shared = work.heading.stage, Together(work.heading.stage)
    several = min(most, len(work.tasks)) > 1
    if several:
        stage.message(f"{len(work.tasks)} runs share {device}, at most {most} at a time")
    elif len(work.tasks) > 1 and at_once is None and device.type == "cuda":
        stage.message(f"{len(work.tasks)} runs use {device} {ONE_BY_ONE}")
    runs = []
    for k, task in enumerate(work.tasks):
        told = shared.of(k, task.title)
        runs.append(shared.following(k, carried(work, task, device, told if several else stage)))
    abreast(runs, device, most, shared.failed)


def carried(work: Work, task: Task, device: torch.device, progress: Progress) -> Going[None]:
    """A run, until it ends or the time is up, when it is asked to save and stop; if it diverges, that is noted."""
    if work.clock.over():
        return
    work.heading.begun(task)
    try:
        with contextlib.closing(going(task, work.source, device, progress)) as steps:
            for about_to_wait in steps:
                if work.clock.over():
                    ask_to_stop()
                yield about_to_wait
    except Diverged as failure:
        work.outcome.failures.append(f"{task.title}: {failure}")
        work.heading.stage.message(f"{task.title}: {failure}; the others continue")
    finally:
        work.heading.ended(task)


def going(task: Task, source: Source, device: torch.device, progress: Progress) -> Going[Result]:
    """The run of a task, step by step."""
    if task.member is None:
        return distilling(task.recipe, task.run, task.teachers, source=source, progress=progress)
    return teaching(task.recipe, RunFolder(task.run), task.member, source, device, ALONE, progress)


def groups(tasks: Sequence[Task]) -> Iterator[list[Task]]:
    """Groups of runs that do not depend on each other: the teachers of a setting, then its students."""
    for _, same in itertools.groupby(tasks, lambda task: (task.recipe.name, task.recipe.data, task.member is None)):
        yield list(same)


def together(work: Work, device: torch.device) -> int:
    """How many runs to train at once by default: as many as suit the largest of them."""
    kinds = {(task.row, task.recipe.members): task for task in work.tasks}
    each = (side_by_side(task.recipe, work.source, device, student=task.member is None) for task in kinds.values())
    return min(each) if device.type == "cuda" else 1
