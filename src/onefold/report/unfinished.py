"""Runs that have begun and not ended: how far they are, as far as their logs tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onefold.report.logs import Points, is_number


@dataclass(frozen=True, eq=False)
class Unfinished:
    """One of them, and the lines of its log."""

    label: str
    title: str  # data set and network
    path: Path
    log: tuple[dict[str, Any], ...]
    steps: float  # an epoch
    epochs: int
    method: str
    perturbation: str
    members: int

    @property
    def kind(self) -> str:
        return "single" if self.method == "supervised" else "student"

    @property
    def reached(self) -> float:
        """Epochs that are done."""
        return max((record["step"] for record in self.log if is_number(record.get("step"))), default=0) / self.steps


def curve(run: Unfinished, kind: str, key: str) -> Points:
    """A logged value by epoch, and between epochs where it was logged more often."""
    return [
        (record["step"] / run.steps, float(record[key]))
        for record in run.log
        if record.get("kind") == kind and is_number(record.get(key)) and is_number(record.get("step"))
    ]


def labelled(runs: Sequence[Unfinished]) -> list[tuple[str, Unfinished]]:
    """Each with a name of its own: its folder's, where another run is called the same."""
    labels = [run.label for run in runs]
    return [
        (run.label if labels.count(run.label) == 1 else f"{run.label} ({run.path.parent.name}/{run.path.name})", run)
        for run in runs
    ]
