"""`onefold reproduce`."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from onefold.cli.plans import row_table, run_table, told
from onefold.cli.requests import Reproduce
from onefold.cli.tables import deviations, section_table
from onefold.engine.device import device_named
from onefold.engine.distributed import world_here
from onefold.reproduce import TABLES, Changes, measurings_of, reproduce, tasks_of
from onefold.run import check_own_folder
from onefold.terminal import display, say

FAILED = 1


def run(request: Reproduce, out: Console) -> None:
    if world_here().size > 1:
        raise ValueError(
            "reproduce: expected one process; once the teachers are trained, start one for each GPU, with --device "
            "cuda:N and --rows of its own"
        )
    if request.folders and not request.dry_run:
        raise ValueError("--folders: expected only together with --dry-run")
    changes = changes_of(request)
    folder = Path(request.out).expanduser()
    tasks = tasks_of(TABLES[request.table], folder, changes)
    for task in tasks:
        task.check()
    measurings = measurings_of(TABLES[request.table], tasks)
    if request.dry_run:
        out.print(run_table(tasks, measurings, out.width) if request.folders else row_table(tasks, measurings))
        say(told(tasks))
        return
    device_named(request.device)  # refuses a missing device before data are read
    check_own_folder(folder)
    say(told(tasks))
    with display() as shown:
        stage = shown.stage(request.table)
        made = reproduce(
            request.table, folder, stage=stage, changes=changes, at_once=request.at_once, minutes=request.minutes
        )
    for section in made.sections:
        out.print(section_table(section, out.width))
        if said := deviations(section):
            say(said)
    for failure in made.outcome.failures:
        say(f"failed: {failure}")
    missing = sum(not task.finished for task in tasks)
    if made.outcome.stopped:
        say(f"stopped after {request.minutes:g} minutes with everything saved; run the same command again to resume")
    if missing:
        say(f"{missing} of {len(tasks)} runs are still to be done")
    unmeasured = sum(not each.done for each in measurings)
    if unmeasured and not missing:
        say(f"{unmeasured} of {len(measurings)} measurements are still to be done")
    if made.page is not None:
        out.print(str(made.page), markup=False, emoji=False, highlight=False, soft_wrap=True)
    if made.outcome.failures:
        raise SystemExit(FAILED)  # the failures have been reported above


def changes_of(request: Reproduce) -> Changes:
    if request.epochs is not None and request.epochs < 1:
        raise ValueError(f"--epochs: expected at least 1, got {request.epochs}")
    try:
        members = tuple(int(word) for word in words(request.members))
    except ValueError:
        raise ValueError(f"--members: expected numbers of teachers such as 4,8, got '{request.members}'") from None
    return Changes(
        rows=words(request.rows),
        members=members,
        seeds=request.seeds,
        epochs=request.epochs,
        device=request.device,
        precision=request.precision,
        root=request.root,
        download=request.download,
    )


def words(listed: str | None) -> tuple[str, ...]:
    return tuple(word.strip() for word in (listed or "").split(",") if word.strip())
