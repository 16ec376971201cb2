"""Runs that were started but are not finished, and their progress according to their logs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onefold.report.logs import Points, is_number


@dataclass(frozen=True, eq=False)
class Unfinished:
    """An unfinished run, with the lines of its log."""

    label: str
    title: str  # data set and network
    path: Path
    log: tuple[dict[str, Any], ...]
    steps: float  # per epoch
    epochs: int
    method: str
    perturbation: str
    members: int

    @property
    def kind(self) -> str:
        return "single" if self.method == "supervised" else "student"

    @property
    def reached(self) -> float:
        """The number of epochs that are done."""
        return max((record["step"] for record in self.log if is_number(record.get("step"))), default=0) / self.steps


def curve(run: Unfinished, kind: str, key: str) -> Points:
    """A logged value by epoch, with fractional epochs if it was logged more often."""
    return [
        (record["step"] / run.steps, float(record[key]))
        for record in run.log
        if record.get("kind") == kind and is_number(record.get(key)) and is_number(record.get("step"))
    ]


def labelled(runs: Sequence[Unfinished]) -> list[tuple[str, Unfinished]]:
    """The runs with unique labels: if several have the same label, their folders are added."""
    labels = [run.label for run in runs]
    return [
        (run.label if labels.count(run.label) == 1 else f"{run.label} ({run.path.parent.name}/{run.path.name})", run)
        for run in runs
    ]
