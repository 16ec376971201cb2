"""Estimates what a recipe will cost in passes, FLOPs, memory and time, for its teachers and for its student."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch

from onefold.bench.measured import Measured, measured
from onefold.bench.stand_in import Examples
from onefold.data.order import steps_in
from onefold.engine.cost.counting import count_forward
from onefold.engine.cost.passes import Passes, passes_of, served_members
from onefold.engine.diversity import how_often
from onefold.engine.networks.named import build_network
from onefold.engine.settings import settings_of
from onefold.methods import method_named, perturbation_named
from onefold.recipe import Recipe, evaluated


@dataclass(frozen=True)
class Work:
    """The amount of work, by counting."""

    passes: Passes  # per step
    runs: int  # networks that are trained
    steps: int  # per run
    flops: float  # of one example through one network
    batch: int
    evaluated: int  # forward passes of single examples for evaluation, per run

    @property
    def step_flops(self) -> float:
        return self.passes.equivalents * self.batch * self.flops

    def total_flops(self, examples: int) -> float:
        """FLOPs of all runs, each of which trains on `examples` examples, counted in every epoch."""
        return self.runs * self.flops * (self.passes.equivalents * examples + self.evaluated)


@dataclass(frozen=True)
class Times:
    """The seconds that a command takes."""

    start_up: float
    training: float
    evaluation: float
    checkpoints: float

    @property
    def total(self) -> float:
        return self.start_up + self.training + self.evaluation + self.checkpoints


@dataclass(frozen=True)
class Phase:
    """One command: `train` with all teachers, or `distill`."""

    name: str
    work: Work
    tflop: float  # in total
    measured: Measured
    times: Times

    def record(self) -> dict[str, Any]:
        found = asdict(self)
        found["times"]["total"] = self.times.total
        found["work"]["passes"]["equivalents"] = self.work.passes.equivalents
        found["work"]["step_tflop"] = self.work.step_flops / 1e12
        return found


def phase_of(
    recipe: Recipe,
    examples: Examples,
    device: torch.device,
    *,
    student: bool,
    seconds: float,
    program: float,
    say: Callable[[str], None],
) -> Phase:
    """Counts, measures for some seconds, and adds up; `program` is the time to start the program itself."""
    work = work_of(recipe, examples, student=student)
    found = measured(recipe, examples, device, student=student, seconds=seconds, say=say)
    learned = recipe.epochs * learned_from(recipe, examples)
    times = times_of(recipe, examples, work, found, program)
    return Phase("student" if student else "teachers", work, work.total_flops(learned) / 1e12, found, times)


def learned_from(recipe: Recipe, examples: Examples) -> int:
    """Examples per epoch."""
    count, batch = examples.counts["train"], recipe.optim.batch_size
    return count // batch * batch if recipe.optim.drop_last else count


def work_of(recipe: Recipe, examples: Examples, *, student: bool) -> Work:
    source, members, counts = examples.source, recipe.members, examples.counts
    method = method_named(recipe.distill.method if student else "supervised")
    perturbation = perturbation_named(recipe.distill.perturbation if student else "none")
    net = build_network(recipe.network, len(source.classes), source.statistics, source.image_size)
    shape = (source.channels, *source.image_size) if len(source.image_size) == 2 else source.image_size
    looked_at = evaluations(recipe) * counts["val"] + counts["val"] + counts["test"]
    return Work(
        passes=passes_of(method, perturbation, members),
        runs=1 if student else members,
        steps=recipe.epochs * steps_in(counts["train"], recipe.optim.batch_size, recipe.optim.drop_last),
        flops=float(count_forward(net, (1, *shape)).flops),
        batch=recipe.optim.batch_size,
        evaluated=served_members(method, members) * looked_at,
    )


def evaluations(recipe: Recipe) -> int:
    """The number of evaluations on the validation split in a run; there is always one after the last epoch."""
    epochs = range(1, recipe.epochs + 1)
    return sum(evaluated(epoch, recipe.epochs, recipe.eval_every, recipe.eval_last) for epoch in epochs)


def times_of(recipe: Recipe, examples: Examples, work: Work, found: Measured, program: float) -> Times:
    """The times of the whole command, from those of its parts.

    Runs that were measured side by side take their steps together, and everything else one after the other.
    """
    counts, epochs, batch = examples.counts, recipe.epochs, recipe.optim.batch_size
    full = counts["train"] // batch if found.last or recipe.optim.drop_last else steps_in(counts["train"], batch, False)
    rounds = work.runs / found.runs
    training = rounds * epochs * (full * found.step + found.last)
    looks = evaluations(recipe) * (found.serve + counts["val"] * found.example)
    if found.look:
        _, every = how_often(recipe.diversity_every, epochs, learned_from(recipe, examples))
        looks += epochs // every * found.look
    final = found.serve + (counts["val"] + counts["test"]) * found.example + found.metrics
    # A checkpoint per epoch, and in a long epoch one every few minutes; the best weights after each evaluation. They
    # are written in the background, and waited for only if the next ones come first. At the end, the run waits for the
    # last checkpoint, and for the model, which is a third as large.
    epoch = training / epochs / rounds
    within = int(epoch / (60 * settings_of(recipe, 0).minutes))
    kept = epochs * (1 + within) * found.checkpoint + evaluations(recipe) * found.best + 4 / 3 * found.written
    kept += epochs * max(0.0, found.written - epoch / found.runs - looks / epochs - found.checkpoint - found.best)
    return Times(
        start_up=program + examples.loading + rounds * found.start_up,
        training=training,
        evaluation=work.runs * (looks + final),
        checkpoints=work.runs * kept,
    )
