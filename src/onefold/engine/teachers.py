"""Teachers from their run folders."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from torch import nn

from onefold.data import Source
from onefold.engine.checkpoint import load_network
from onefold.engine.networks import network_of
from onefold.ensemble import Teachers
from onefold.run import RunFolder


def rebuilt(run: RunFolder) -> nn.Module:
    """A network of the architecture that a run has recorded."""
    return network_of(run.about)[0]


def load_teachers(
    folder: Path | str,
    build: Callable[[RunFolder], nn.Module] = rebuilt,
    *,
    members: int | None = None,
) -> Teachers:
    """The finished teachers `folder/teacher-0`, ...; the first `members` of them where that is given.

    `build` makes a network of a teacher's architecture, and is needed for networks of your own.
    """
    networks = []
    for run in teacher_runs(folder, members):
        network = build(run)
        load_network(run.model, network)
        networks.append(network)
    return Teachers(networks)


def teacher_runs(folder: Path | str, members: int | None = None) -> list[RunFolder]:
    """The folders of the teachers, each of them finished."""
    folder = Path(folder).expanduser()
    if not folder.is_dir():
        raise ValueError(f"teachers: expected a folder made by `onefold train`, got {folder}, which is not there")
    there = sum(path.is_dir() for path in folder.glob("teacher-*"))
    if not there:
        raise ValueError(f"teachers: expected teacher-0, teacher-1, ... in {folder}, got none; run `onefold train`")
    runs = [RunFolder(folder / f"teacher-{m}") for m in range(there if members is None else members)]
    missing = [run.path.name for run in runs if not run.path.is_dir()]
    if missing:
        raise ValueError(
            f"teachers: expected {len(runs)} teachers in {folder}, got no {', '.join(missing)}; train them with "
            "`onefold train`, or ask for fewer members"
        )
    unfinished = [run.path.name for run in runs if not run.finished]
    if unfinished:
        raise ValueError(
            f"teachers: {', '.join(unfinished)} in {folder} not finished; run `onefold train` again to go on"
        )
    return runs


def check_data(folder: Path | str, members: int, name: str, source: Source) -> None:
    """Refuses teachers of another data set. One that has moved is the same if its classes and statistics are."""
    for run in teacher_runs(folder, members):
        about = run.about
        same = about.get("class_names") == list(source.classes)
        same &= about.get("data") == name or about.get("statistics") == [list(m) for m in source.statistics]
        if not same:
            raise ValueError(
                f"teachers: {run.path} was trained on {about.get('data')} with {about.get('classes')} classes and the "
                f"student is to learn {name} with {len(source.classes)}; give the teachers of that data set"
            )
