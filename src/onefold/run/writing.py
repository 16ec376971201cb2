"""Writes files atomically."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

ASIDE = ".writing"


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Adds the path to an OSError: by itself, a write that fails does not say which file it was."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise


def write_aside(path: Path, content: bytes | Callable[[IO[bytes]], object]) -> None:
    """Writes a file atomically: at every moment there is either the complete old file or the complete new one.

    Content that does not fit into memory is given as a function that writes it.
    """
    aside = path.with_name(path.name + ASIDE)
    try:
        with naming(path):
            with aside.open("wb") as file:
                file.write(content) if isinstance(content, bytes) else content(file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(aside, path)
            sync_folder(path.parent)
    except OSError:
        with contextlib.suppress(OSError):
            aside.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Makes a rename survive a crash: file names are stored in the folder."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
