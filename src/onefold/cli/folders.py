"""Finds the runs in the folders given on the command line."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from onefold.engine.measure.subject import is_teachers
from onefold.run import RunFolder

NAMED = "teacher-"


class Named(NamedTuple):
    """A run or a folder of teachers: its name, its path, and whether that path itself was on the command line."""

    name: str
    path: Path
    given: bool


def named(folders: Sequence[str]) -> list[Named]:
    """The runs in all folders, each once, in the order in which they were given."""
    found: dict[Path, Named] = {}
    for folder in folders:
        for each in inside(folder):
            found.setdefault(each.path.resolve(), each)
    return list(found.values())


def inside(folder: str) -> list[Named]:
    """The folder itself if it is a run or contains none; else all runs in it, at any depth."""
    home = Path(folder).expanduser()
    if RunFolder(home).started:
        return [Named(folder, home, True)]
    runs = {file.parent for name in ("recipe.json", "result.json") for file in home.rglob(name)}
    places = {run.parent if run.name.startswith(NAMED) and is_teachers(run.parent) else run for run in runs}
    if not places or places == {home}:
        return [Named(folder, home, True)]
    ordered = sorted(places, key=order_of)
    return [
        Named(folder if place == home else os.path.join(folder, place.relative_to(home)), place, place == home)
        for place in ordered
    ]


def order_of(place: Path) -> tuple[list[list[str | int]], bool, list[str | int]]:
    """Sorts by folder, teachers first, then by name; numbers in names count as numbers."""
    return [naturally(part) for part in place.parent.parts], not is_teachers(place), naturally(place.name)


def naturally(name: str) -> list[str | int]:
    """Text and numbers in turn, so that teacher-10 comes after teacher-9."""
    return [int(part) if number % 2 else part for number, part in enumerate(re.split(r"([0-9]+)", name))]
