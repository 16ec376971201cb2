"""Curves from the log of a run, one value per epoch."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from onefold.report.table import Row

Points = list[tuple[float, float]]


def curve(row: Row, kind: str, key: str) -> Points:
    """A logged value by epoch: the mean over the lines of an epoch, and over the networks of a row."""
    each = [by_epoch(answer.logged.get(kind, ()), key) for answer in row.answers]
    each = [values for values in each if values]
    epochs = sorted(set().union(*each))
    return [(epoch, statistics.fmean(values[epoch] for values in each if epoch in values)) for epoch in epochs]


def by_epoch(log: Sequence[dict[str, Any]], key: str) -> dict[float, float]:
    found: dict[float, list[float]] = {}
    for record in log:
        value, epoch = record.get(key), record.get("epoch")
        if is_number(value) and is_number(epoch):
            found.setdefault(float(epoch), []).append(float(value))  # type: ignore[arg-type]
    return {epoch: statistics.fmean(values) for epoch, values in found.items()}


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
