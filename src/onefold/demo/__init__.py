"""The demo: teachers, their ensemble, and students that cost as much as a single teacher, on a small data set."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path

from onefold.data import Arrays
from onefold.demo.crew import run_tasks
from onefold.demo.speed import write_speeds
from onefold.demo.tasks import Stage, source_of, student_tasks, teacher_tasks, unseen
from onefold.recipe import Recipe
from onefold.recipes import digits
from onefold.report import Section, report
from onefold.run import RunFolder

SEEDS = 3
MOST_WORKERS = 2  # each needs about 0.75 GB

__all__ = ["SEEDS", "Stage", "demo"]


def demo(
    out: Path | str,
    *,
    seeds: int = SEEDS,
    workers: int | None = None,
    recipe: Recipe | None = None,
    stage: Callable[[str], Stage] = unseen,
) -> tuple[Path, list[Section]]:
    """Trains, distils, evaluates and times everything in `out`; returns the page's path and its sections.

    Every seed repeats everything with different random numbers: other teachers and other students. The work is shared
    by workers with one thread each; results do not depend on how many there are.
    """
    recipe = digits() if recipe is None else recipe
    folders = {seed: Path(out).expanduser() / f"seed-{seed}" for seed in range(seeds)}
    jobs = [(dataclasses.replace(recipe, seed=seed), folder) for seed, folder in folders.items()]
    tasks = [task for job in jobs for task in (*teacher_tasks(*job), *student_tasks(*job))]
    there = sum(RunFolder(task.run).finished for task in tasks)
    if there:
        stage("demo").message(f"{there} of {len(tasks)} networks are already in {out} and are kept")
    run_tasks(tasks, min(workers or cores(), max(1, len(tasks) - there)), stage)
    source = source_of(recipe)
    assert isinstance(source.train, Arrays), "the demo's data lie in memory"
    write_speeds(recipe, folders[0], source)
    introduction = (
        f"{recipe.members} teachers trained on {len(source.train):,} images, their ensemble, and students distilled "
        "from them. An ensemble runs every teacher; a student is one network of the same size as a teacher. "
        + ("One seed." if seeds == 1 else f"Everything was repeated with {seeds} seeds."),
        "The settings were chosen on the validation split, but after seeing test results of three earlier ones.",
    )
    return report(
        list(folders.values()),
        Path(out).expanduser() / "report.html",
        title="From an ensemble to one network",
        introduction=introduction,
    )


def cores() -> int:
    """The number of cores this process may use, limited for the memory of a small machine."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(usable, MOST_WORKERS)
