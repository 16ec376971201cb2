"""How a measurement reports its progress and its outcome."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol


class Counting(Protocol):
    """Receives the progress of a stage, which ends with done = total, and messages."""

    def title(self, text: str) -> None: ...

    def count(self, done: int, total: int, detail: str = "") -> None: ...

    def message(self, text: str) -> None: ...


@dataclass(frozen=True)
class Told:
    """Messages: what does not apply to a run, what failed (mostly because data are missing), and why a folder is not
    measured at all."""

    left_out: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    refused: dict[Path, str] = field(default_factory=dict)
