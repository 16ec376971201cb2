"""Where the data of a run lie that are named by a path, so that they are found from another folder, too."""

from __future__ import annotations

import os
from pathlib import Path

BY_PATH = ("npz", "folder")


def place_of(source: str) -> str | None:
    """The whole path of `npz:PATH` and `folder:PATH`; other sources lie below the root of data."""
    kind, _, path = source.partition(":")
    return os.path.abspath(Path(path).expanduser()) if kind in BY_PATH and path else None


def found_again(source: str, place: str | None) -> str:
    """The source as it is named; or where it was when a run was begun, if nothing is there by that name."""
    named = place_of(source)
    if named is None or place is None or os.path.exists(named) or not os.path.exists(place):
        return source
    return f"{source.partition(':')[0]}:{place}"
