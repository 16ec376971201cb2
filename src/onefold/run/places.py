"""Whether something can be written somewhere, found out before any time is spent on it."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from pathlib import Path

from onefold.run.kinds import KINDS, check_ending, check_replaceable

MARKS = ("recipe.json", "run.json", "env.json", "result.json")  # a folder with two of these is a run's
EXPORT = "export"  # the folder in a run's for what is made of it
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def check_room(path: Path, needed: int, why: str) -> None:
    """Refuses a folder, which need not exist yet, whose disk has too few bytes left."""
    there = nearest_there(path)
    try:
        free = shutil.disk_usage(there).free
    except OSError as error:
        raise unwritable(path, error) from None
    if free < needed:
        raise ValueError(
            f"out: {path} has {megabytes(free)} MB free and {why} {megabytes(needed)} MB; "
            "free up space or choose another folder"
        )


def check_folder(path: Path, name: str = "out") -> None:
    """Refuses a folder that cannot be written or created, before any time is spent on it."""
    check_made(path, path, name, "folder")


def check_file(path: Path, name: str = "out", kind: str | None = None) -> None:
    """The same for a file, whose folder need not exist yet. Files of a run are never replaced; with one of `KINDS`,
    nothing is that onefold did not write as such."""
    check_outside_runs(path, name)
    if kind is not None:
        check_ending(path, name, KINDS[kind])
        if not in_export(path):
            check_replaceable(path, name, KINDS[kind])
    check_made(path, path.parent, name, "file")


def check_own_folder(path: Path, name: str = "out") -> None:
    """The same for a folder that is neither a run's nor in one, unless in RUN/export."""
    check_outside_runs(path, name)
    check_folder(path, name)


def check_outside_runs(path: Path, name: str) -> None:
    run = run_around(path)
    if run is not None and not in_export(path):
        where = "is a run folder" if run == path.resolve() else f"is in the run folder {run}"
        raise ValueError(
            f"{name}: {path} {where}, in which nothing is replaced; choose a place outside, or in {run / EXPORT}"
        )


def run_around(path: Path) -> Path | None:
    """The run folder that the path is, or is in."""
    whole = path.resolve()
    return next((folder for folder in (whole, *whole.parents) if is_run(folder)), None)


def is_run(folder: Path) -> bool:
    return sum(os.path.exists(folder / mark) for mark in MARKS) > 1


def in_export(path: Path) -> bool:
    """Whether the path is in the folder for exports of a run, or of a folder of runs."""
    whole = path.resolve()
    exports = [folder for folder in (whole, *whole.parents) if folder.name == EXPORT]
    return any(is_run(folder.parent) or holds_runs(folder.parent) for folder in exports)


def holds_runs(folder: Path) -> bool:
    return folder.is_dir() and any(is_run(each) for each in folder.iterdir() if each.is_dir())


def check_made(path: Path, folder: Path, name: str, kind: str) -> None:
    there = nearest_there(folder)
    try:  # by trying: permissions do not tell everything, and do not apply to root
        with tempfile.TemporaryDirectory(prefix=".onefold-", dir=there, ignore_cleanup_errors=True):
            pass
    except OSError as error:
        remedy = "free up space or choose" if error.errno in FULL else "choose"
        raise ValueError(
            f"{name}: cannot write to {path}, because nothing can be created in {there} ({error.strerror}); "
            f"{remedy} another {kind}"
        ) from None


def nearest_there(path: Path) -> Path:
    """The folder itself, or its nearest parent that exists."""
    return next((place for place in (path, *path.absolute().parents) if os.path.exists(place)), path)


def megabytes(count: int) -> str:
    return f"{count / 1e6:.1f}" if count < 10e6 else f"{count / 1e6:,.0f}"


def unwritable(path: Path, error: OSError) -> ValueError:
    remedy = "free up space" if error.errno in FULL else "make it writable"
    return ValueError(f"out: cannot write to {path} ({error.strerror}); {remedy} or choose another folder")
