"""`onefold evaluate`: metrics from stored predictions, and measurements that run the networks again."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from onefold.cli.folders import named
from onefold.cli.measured import show_measured
from onefold.cli.requests import Evaluate
from onefold.cli.tables import metrics_table, temperature_warnings
from onefold.engine import evaluate_run
from onefold.engine.device import device_named
from onefold.engine.evaluate import teacher_folders
from onefold.engine.measure.groups import groups
from onefold.engine.measure.inputs import DataOptions
from onefold.engine.measure.measure import Wanted, measure_runs
from onefold.engine.measure.members import members
from onefold.engine.measure.progress import Failure, listed
from onefold.engine.measure.subject import Folder, is_teachers
from onefold.terminal import display, propose, say, say_first


def run(request: Evaluate, out: Console) -> None:
    wanted, device = wanted_of(request), device_named(request.device)
    rows: list[tuple[str, dict[str, float]]] = []
    evaluated: list[Path] = []
    for name, path, given in named(request.runs):
        try:
            rows += teachers_rows(name, path) if is_teachers(path) else [(name, evaluate_run(path))]
        except (ValueError, OSError) as error:
            if given:
                raise
            say(f"left out: {error}")
        else:
            evaluated.append(path)
    if not rows:
        raise ValueError(f"{', '.join(request.runs)}: expected a finished run, got none")
    out.print(metrics_table(rows, out.width))
    for warning in temperature_warnings(rows):
        say(warning)
    if not wanted.anything:
        return
    left_out: list[str] = []
    failed: list[Failure] = []
    refused: dict[Path, str] = {}
    with display() as shown:
        for group in groups([Folder(path, network=request.network or "") for path in evaluated], wanted):
            told = measure_runs(group, wanted, device, shown.stage)
            left_out += told.left_out
            failed += told.failed
            refused |= told.refused
    say_first(left_out, "what is not measured")
    show_measured(evaluated, wanted, out, failed, refused)
    if sentences := [*dict.fromkeys(refused.values()), *listed(failed)]:
        raise ValueError("not everything could be measured:\n" + "\n".join(f"  {sentence}" for sentence in sentences))
    propose(["onefold", "report", *request.runs])


def teachers_rows(folder: str, path: Path) -> list[tuple[str, dict[str, float]]]:
    """Rows for the ensembles of the first 1, 2, ... teachers, which are stored if possible, and of all of them."""
    metrics = evaluate_run(path)  # its error names what is not finished
    names = [teacher.name for teacher in teacher_folders(path)]
    missing = next((name for name in map("teacher-{}".format, range(len(names))) if name not in names), None)
    if missing is not None:
        there = " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
        say(f"{folder}: {missing} is missing; the row covers only {there}")
        return [(folder, metrics)]
    try:
        rows = members(path)
    except ValueError as error:
        say(f"the ensembles of the first teachers were not saved: {error}")
        rows = []
    return [(f"{folder} DE-{row['members']}", row["metrics"]) for row in rows[:-1]] + [(folder, metrics)]


def wanted_of(request: Evaluate) -> Wanted:
    sets: dict[str, str] = {}
    for given in request.ood:
        name, equals, spec = given.partition("=")
        if not name or (equals and not spec):
            raise ValueError(f"--ood: expected NAME=SPEC such as lsun=folder:PATH, got '{given}'")
        if name in sets:
            raise ValueError(f"--ood: expected different names, got '{name}' twice")
        sets[name] = spec if equals else name
    if request.corruptions and request.corrupted is not None:
        raise ValueError(
            "--corrupted: expected either a folder of published images or --corruptions, which generates them, got both"
        )
    data = request.data
    return Wanted(
        corruptions=request.corruptions,
        corrupted=None if request.corrupted is None else Path(request.corrupted).expanduser(),
        ood=sets,
        subspace=request.subspace,
        health=request.health,
        costs=request.costs,
        everything=request.all,
        images=request.images,
        data=DataOptions(data.root, request.download or data.download, data.skip_unreadable, data.workers),
    )
