"""The location of data that a run names by a path, so that they are found from another working folder, too."""

from __future__ import annotations

import os
from pathlib import Path

BY_PATH = ("npz", "folder")


def place_of(source: str) -> str | None:
    """The absolute path of `npz:PATH` and `folder:PATH`; None for other sources, which are below the data root."""
    kind, _, path = source.partition(":")
    return os.path.abspath(Path(path).expanduser()) if kind in BY_PATH and path else None


def found_again(source: str, place: str | None) -> str:
    """The source as named; or, if there is nothing at that path, where it was when the run was started."""
    named = place_of(source)
    if named is None or place is None or os.path.exists(named) or not os.path.exists(place):
        return source
    return f"{source.partition(':')[0]}:{place}"
