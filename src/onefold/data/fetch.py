"""Error messages for data that are missing or cannot be downloaded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from onefold.install import install


def missing(name: str, places: Sequence[Path]) -> ValueError:
    """An error that says where we looked, and what to do."""
    looked = " and ".join(str(place) for place in places)
    return ValueError(f"{name}: {looked} not found; pass --download (download=True in Python)")


@contextmanager
def refused(name: str, place: Path, download: bool) -> Iterator[None]:
    """Turns errors of a reader or a download into one sentence instead of a traceback."""
    try:
        yield
    except ImportError as error:
        raise ValueError(f"{name}: reading it needs {error.name}; run: {install(str(error.name))}") from error
    except (OSError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        if download:
            raise ValueError(
                f"{name}: could not download it to {place}: {reason}; try again, or put its files there"
            ) from error
        raise ValueError(f"{name}: could not read it in {place}: {reason}; pass --download") from error
