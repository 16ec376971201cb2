"""`onefold plan`."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from onefold.bench.growth import Grown, growth, growth_measured
from onefold.bench.plan import Phase, phase_of
from onefold.bench.stand_in import examples_for
from onefold.bench.timing import cleared, other_work
from onefold.cli.requests import Plan
from onefold.cli.run_bench import file_named, write_json
from onefold.engine.device import device_named, precision_on
from onefold.engine.distributed import world_here
from onefold.engine.keeping.environment import environment, now
from onefold.engine.networks.named import build_network, check_network, shown
from onefold.engine.settings import settings_of
from onefold.recipe import to_dict
from onefold.terminal import say

MOST = 600.0


def run(request: Plan, out: Console) -> None:
    if world_here().size > 1:
        raise ValueError("plan: expected one process, which measures one device; run it without torchrun")
    if not 0 < request.seconds <= MOST:
        raise ValueError(f"--seconds: expected more than 0 and at most {MOST:.0f}, got {request.seconds:g}")
    recipe, file = request.fields.checked(), file_named(request.out)
    device = device_named(recipe.device)
    settings_of(recipe, recipe.seed)  # refuses numbers that make no sense before anything is measured
    check_network(recipe.network)
    cleared(device)
    program = time.process_time()  # spent on imports so far, as in every run: even an optimizer loads the compiler
    examples = examples_for(recipe, synthetic=request.synthetic)
    source = examples.source
    net = build_network(recipe.network, len(source.classes), source.statistics, source.image_size)
    if examples.note:
        say(examples.note)
    counts = ", ".join(f"{name} {count:,}" for name, count in examples.counts.items())
    parameters = sum(p.numel() for p in net.parameters())
    named = shown(recipe.network, len(source.classes), source.statistics)
    say(f"{recipe.name}: {named}, {parameters:,} parameters; {recipe.data.source}: {counts}")
    precision = precision_on(device, recipe.precision)
    if (note := other_work()) is not None:
        say(note)
    say(f"measuring on {device}, {precision}: {request.seconds:g} s of teacher steps, then as long of student steps")
    teachers, student = (
        phase_of(recipe, examples, device, student=student, seconds=request.seconds, program=program, say=say)
        for student in (False, True)
    )
    out.print(phases_table([teachers, student], device.type == "cuda"))
    if request.growth == "measured":
        rows = growth_measured(recipe, examples, teachers, student, device, request.seconds, say)
    else:
        rows = growth(recipe, examples, teachers, student)
    out.print(growth_table(rows))
    exchanged = 4 * parameters / 1e6
    times = "measured" if request.growth == "measured" else "extrapolated from FLOPs"
    say(
        f"for other settings, times are {times} and memory is estimated; for several devices, times are extrapolated, "
        f"without exchanging {exchanged:,.1f} MB of gradients per device and step"
    )
    if (runs := teachers.measured.runs) > 1:
        say(
            f"{runs} teachers were measured side by side; with fewer on a device, each takes more than 1/{runs} of this"
        )
    if file is not None:
        record: dict[str, Any] = {"date": now(), "recipe": to_dict(recipe), "environment": environment(device)}
        record |= {"note": examples.note}
        record |= {"examples": examples.counts, "phases": [teachers.record(), student.record()]}
        write_json(file, record | {"growth": [asdict(row) for row in rows]})
        say(f"written: {file}")


def phases_table(phases: list[Phase], cuda: bool) -> Table:
    """A column for each command, a row for each quantity."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("")
    for phase in phases:
        table.add_column(phase.name, justify="right")
    rows = {
        "passes per step": [str(p.work.passes) for p in phases],
        "in forward passes": [f"{p.work.passes.equivalents}" for p in phases],
        "TFLOP per step": [f"{p.work.step_flops / 1e12:.3g}" for p in phases],
        "TFLOP in total": [f"{p.tflop:,.3g}" if p.tflop < 1000 else f"{p.tflop:,.0f}" for p in phases],
        "steps": [f"{p.work.steps:,}" + (f" x {p.work.runs}" if p.work.runs > 1 else "") for p in phases],
        "ms per step": [milliseconds(p) for p in phases],
        "memory": [f"{p.measured.memory / 1e9:.2f} GB " + ("on the GPU" if cuda else "in total") for p in phases],
        "start-up": [duration(p.times.start_up) for p in phases],
        "training": [duration(p.times.training) for p in phases],
        "evaluation": [duration(p.times.evaluation) for p in phases],
        "checkpoints": [duration(p.times.checkpoints) for p in phases],
        "time": [duration(p.times.total) for p in phases],
    }
    for name, cells in rows.items():
        table.add_row(name, *cells)
    return table


def milliseconds(phase: Phase) -> str:
    together = f", {phase.measured.runs} at once" if phase.measured.runs > 1 else ""
    return f"{1e3 * phase.measured.step:,.2f}{together}"


def growth_table(rows: list[Grown]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for heading in ("student", "passes", "TFLOP per step", "memory GB", "ms per step", "time", "teachers' time"):
        table.add_column(heading, justify="left" if heading == "student" else "right")
    for row in rows:
        numbers = [f"{row.passes}", f"{row.step_tflop:.3g}", f"{row.memory / 1e9:.2f}", f"{1e3 * row.step:,.2f}"]
        table.add_row(row.what, *numbers, duration(row.student), duration(row.teachers))
    return table


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"
