"""How the cost of a student grows with members, batch size and devices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from onefold.bench.plan import Phase, phase_of, work_of
from onefold.bench.stand_in import Examples
from onefold.engine.cost.memory import memory
from onefold.engine.networks.named import build_network
from onefold.methods import method_named
from onefold.recipe import Recipe

DEVICES = (2, 4, 8)


@dataclass(frozen=True)
class Grown:
    """A setting and what it would cost."""

    what: str
    passes: int  # in forward passes
    step_tflop: float
    memory: float  # bytes per device
    step: float  # seconds
    student: float  # seconds in total
    teachers: float


def growth(recipe: Recipe, examples: Examples, teachers: Phase, student: Phase) -> list[Grown]:
    """Extrapolates from what was measured: time in proportion to FLOPs, memory by the difference of the estimates.

    On a GPU that small steps do not fill, time grows more slowly than that. Several devices share every batch of the
    student, and train different teachers if there are enough; their communication is not included.
    """
    here = row("as it is", recipe, recipe, 1, examples, teachers, student)
    other = [row(what, changed, recipe, 1, examples, teachers, student) for what, changed in variants(recipe).items()]
    sizes = [devices for devices in DEVICES if recipe.optim.batch_size >= 2 * devices]
    several = [row(f"{n} devices", recipe, recipe, n, examples, teachers, student) for n in sizes]
    return [here, *other, *several]


def variants(recipe: Recipe) -> dict[str, Recipe]:
    """Half and twice the members, half and twice the batch size, without those that make no sense."""
    found: dict[str, Recipe] = {}
    for members in (recipe.members // 2, 2 * recipe.members):
        if members >= 2:
            found[f"M = {members}"] = replace(recipe, members=members)
    for batch in (recipe.optim.batch_size // 2, 2 * recipe.optim.batch_size):
        if batch >= 2 * recipe.optim.accumulate:
            found[f"batch {batch}"] = replace(recipe, optim=replace(recipe.optim, batch_size=batch))
    return found


def row(
    what: str, changed: Recipe, recipe: Recipe, devices: int, examples: Examples, teachers: Phase, student: Phase
) -> Grown:
    before, after = student.work, work_of(changed, examples, student=True)
    more = after.passes.equivalents / before.passes.equivalents
    looked = after.evaluated / before.evaluated
    times = student.times
    shared = (times.training * more + times.evaluation * looked) / devices
    return Grown(
        what,
        after.passes.equivalents,
        after.step_flops / 1e12,
        student.measured.memory + estimate(changed, examples, devices) - estimate(recipe, examples, 1),
        student.measured.step * after.step_flops / before.step_flops / devices,
        times.start_up + times.checkpoints + shared,
        teachers_seconds(teachers, rounds(changed.members, devices)),
    )


def teachers_seconds(measured: Phase, each: float) -> float:
    """Seconds for a device to train `each` teachers. The program starts once, then each group of teachers that train
    side by side has its own start-up."""
    times, runs, own = measured.times, measured.measured.runs, measured.measured.start_up
    program = times.start_up - own * measured.work.runs / runs
    return program + own * max(1.0, each / runs) + (times.total - times.start_up) * each / measured.work.runs


def rounds(members: int, devices: int) -> float:
    """Teachers that a device trains one after the other: each device trains its own, or all devices share each one."""
    return -(-members // devices) if members >= devices else members / devices


def estimate(recipe: Recipe, examples: Examples, devices: int) -> float:
    """Estimated bytes for the student's step on each device."""
    part = -(-recipe.optim.batch_size // devices)
    recipe = replace(recipe, optim=replace(recipe.optim, batch_size=part))
    source = examples.source
    net = build_network(recipe.network, len(source.classes), source.statistics, source.image_size)
    return memory(recipe, source, net, method_named(recipe.distill.method))


def growth_measured(
    recipe: Recipe,
    examples: Examples,
    teachers: Phase,
    student: Phase,
    device: torch.device,
    seconds: float,
    say: Callable[[str], None],
) -> list[Grown]:
    """The same, but with the steps for other M and batch sizes measured; several devices are still extrapolated."""
    rows = growth(recipe, examples, teachers, student)
    found = []
    for grown in rows:
        changed = variants(recipe).get(grown.what)
        if changed is not None:
            phase = phase_of(changed, examples, device, student=True, seconds=seconds, program=0.0, say=say)
            grown = replace(grown, step=phase.measured.step, student=phase.times.total)
        found.append(grown)
    return found
