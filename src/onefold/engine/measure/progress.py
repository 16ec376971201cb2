"""How a measurement tells how far it has come, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol


class Counting(Protocol):
    """A stage that is counted and ends with done = total, and sentences beside it."""

    def title(self, text: str) -> None: ...

    def count(self, done: int, total: int, detail: str = "") -> None: ...

    def message(self, text: str) -> None: ...


@dataclass(frozen=True)
class Told:
    """Sentences: what makes no sense for a run, what went wrong, most often because data are not there, and why a
    folder is not measured at all."""

    left_out: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    refused: dict[Path, str] = field(default_factory=dict)
