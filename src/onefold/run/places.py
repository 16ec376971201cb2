"""Whether something can be written somewhere, found out before any time is spent on it."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from pathlib import Path

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


def check_file(path: Path, name: str = "out") -> None:
    """The same for a file, whose folder need not exist yet."""
    check_made(path, path.parent, name, "file")


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
