"""Loads teachers from their run folders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from onefold.data import Source
from onefold.data.trace import traces
from onefold.engine.distributed.plan import spreads
from onefold.engine.distributed.processes import Processes
from onefold.engine.distributed.spread import SpreadTeachers, own_teachers
from onefold.engine.distributed.world import World
from onefold.engine.keeping.checkpoint import load_network
from onefold.engine.networks.named import doubt, found_at, network_of
from onefold.ensemble import Teachers
from onefold.run import RunFolder

NAMED = "teacher-*"
DEPTH, FEW = 3, 3  # how deep folders of teachers are looked for, and how many of them are named
PLACES = ("data_place", "network_content")  # what identifies data and network, whatever name a recipe gives them


def load_teachers(
    folder: Path | str,
    build: Callable[[RunFolder], nn.Module] | None = None,
    *,
    members: int | None = None,
) -> Teachers:
    """The finished teachers `folder/teacher-0`, ..., or the first `members` of them.

    `build` makes a network of a teacher's architecture; it is needed for networks that were trained from Python.
    """
    return Teachers(load_networks(teacher_runs(folder, members), build))


def load_networks(
    runs: Sequence[RunFolder], build: Callable[[RunFolder], nn.Module] | None = None, given: str = ""
) -> list[nn.Module]:
    """The networks of finished runs. If the file that defines a user's network has moved, `given` says where it is."""
    networks = []
    for run in runs:
        about = found_at(run.about, given)
        network = network_of(about)[0] if build is None else build(run)
        load_network(run.model, network, doubt(about))
        networks.append(network)
    return networks


def teachers_for(
    world: World, wanted: str, folder: Path | str, members: int, device: torch.device, given: str = ""
) -> tuple[Teachers | SpreadTeachers, str]:
    """The first `members` teachers of a folder, replicated or spread over the processes, and a message saying which."""
    runs = teacher_runs(folder, members)
    spread, sentence = spreads(wanted, members, sum(run.model.stat().st_size for run in runs), device, world)
    if not spread or not isinstance(world, Processes):
        return Teachers(load_networks(runs, given=given)), sentence
    own = load_networks([runs[m] for m in own_teachers(members, world.rank, world.size)], given=given)
    return SpreadTeachers(own, members, world), sentence


def teacher_runs(folder: Path | str, members: int | None = None, fewer: str = "") -> list[RunFolder]:
    """The run folders of the teachers, all finished; `fewer`, for messages, is how to ask for fewer than `members`."""
    if members is not None and (isinstance(members, bool) or not isinstance(members, int) or members < 1):
        raise ValueError(f"members: expected a whole number of at least 1, got {members!r}")
    folder = Path(folder).expanduser()
    if not folder.is_dir():
        raise ValueError(f"teachers: expected a folder made by `onefold train`, got {folder}, which does not exist")
    there = sum(path.is_dir() for path in folder.glob(NAMED))
    if not there:
        raise ValueError(f"teachers: {mistaken(folder)}")
    runs = [RunFolder(folder / f"teacher-{m}") for m in range(there if members is None else members)]
    missing = [run.path.name for run in runs if not run.path.is_dir()]
    if missing:
        advice = f", or ask for fewer members ({fewer})" if fewer and runs[0].path.is_dir() else ""
        raise ValueError(
            f"teachers: expected {len(runs)} teachers in {folder}, got no {', '.join(missing)}; train them with "
            f"`onefold train` into the same folder{advice}"
        )
    unfinished = [run.path.name for run in runs if not run.finished]
    if unfinished:
        raise ValueError(
            f"teachers: {', '.join(unfinished)} in {folder} {'is' if len(unfinished) == 1 else 'are'} not finished; "
            "run `onefold train` again to resume"
        )
    return runs


def mistaken(folder: Path) -> str:
    """What a folder without teachers is, and which folder was probably meant."""
    run = RunFolder(folder)
    if run.started and run.about.get("kind") == "teacher":
        return f"{folder} is a single teacher; give the folder that contains it, {holding(folder)}"
    if run.started:
        taught = run.about.get("teachers")
        known = taught is not None and any(Path(taught).glob(NAMED))
        meant = f"its teachers are in {taught}" if known else "give a folder made by `onefold train`"
        return f"{folder} is the run of a student, not a folder of teachers; {meant}"
    near = sorted({path.parent for depth in range(1, DEPTH + 1) for path in folder.glob("*/" * depth + NAMED)})
    if not near:
        return f"expected teacher-0, teacher-1, ... in {folder}, got none; run `onefold train`"
    listed = ", ".join(map(str, near[:FEW])) + ", ..." * (len(near) > FEW)
    return f"{folder} has no teachers itself; give {'one of the folders' if near[1:] else 'the folder'} in it: {listed}"


def holding(folder: Path) -> Path:
    return folder.absolute().parent if folder.parent in (folder, Path()) else folder.parent


def trained_by(folder: Path | str) -> dict[str, Any]:
    """How the teachers of a folder were trained, as the first of them records it."""
    run = teacher_runs(folder, 1)[0]
    return {"recipe": run.recipe} | {name: run.about[name] for name in PLACES if name in run.about}


def check_content(run: RunFolder, name: str, source: Source) -> None:
    """Refuses data other than what a run was trained on, as far as the run has recorded it."""
    before, now = run.about.get("data_content", {}), traces(source)
    changed = [split for split in now if before.get(split, now[split]) != now[split]]
    if changed:
        raise ValueError(
            f"data: {' and '.join(changed)} of {name} {'are' if changed[1:] else 'is'} not what {run.path} was trained "
            "with: the examples, labels or their order differ; restore the old data, or train on these in another "
            "folder"
        )


def check_data(folder: Path | str, members: int, name: str, source: Source) -> None:
    """Refuses teachers of another data set. One that has moved counts as the same if classes and statistics match."""
    for run in teacher_runs(folder, members):
        about = run.about
        same = about.get("class_names") == list(source.classes)
        same &= about.get("data") == name or about.get("statistics") == [list(m) for m in source.statistics]
        if not same:
            raise ValueError(
                f"teachers: {run.path} was trained on {about.get('data')} with {about.get('classes')} classes, but the "
                f"student's data are {name} with {len(source.classes)}; give both the same data set"
            )
        check_content(run, name, source)
