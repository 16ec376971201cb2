"""How a measurement reports its progress and its outcome."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

FEW = 3  # folders that a sentence names


class Counting(Protocol):
    """Receives the progress of a stage, which ends with done = total, and messages."""

    def title(self, text: str) -> None: ...

    def count(self, done: int, total: int, detail: str = "") -> None: ...

    def message(self, text: str) -> None: ...


@dataclass(frozen=True)
class Failure:
    """A measurement of a folder that could not be made, mostly because data are missing; `part` is the set of
    out-of-distribution images, if it is about one."""

    what: str
    path: Path
    reason: str
    part: str = ""

    def __str__(self) -> str:
        return f"{self.what} of {self.path}: {self.reason}"


@dataclass(frozen=True)
class Told:
    """Messages: what does not apply to a run, what failed, and why a folder is not measured at all."""

    left_out: list[str] = field(default_factory=list)
    failed: list[Failure] = field(default_factory=list)
    refused: dict[Path, str] = field(default_factory=dict)


def listed(failures: Sequence[Failure]) -> list[str]:
    """A sentence for each reason, with the folders that it is given for."""
    alike: dict[tuple[str, str], list[Path]] = {}
    for failure in failures:
        alike.setdefault((failure.what, failure.reason), []).append(failure.path)
    found = []
    for (what, reason), paths in alike.items():
        more = f" and {len(paths) - FEW} more" if len(paths) > FEW else ""
        found.append(f"{what} of {', '.join(map(str, paths[:FEW]))}{more}: {reason}")
    return found


def reason_of(error: Exception) -> str:
    """The message of an error; if it comes from the operating system, with the file and without its number."""
    if isinstance(error, OSError) and error.errno is not None and error.strerror == os.strerror(error.errno):
        return f"{error.filename}: {error.strerror.lower()}" if error.filename else error.strerror.lower()
    return str(error)
