"""Ensembles of the first m teachers, DE-1 to DE-M, from their predictions alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from onefold.engine.evaluate import metrics_together, teachers_stored
from onefold.engine.measure.store import Measurements, fingerprint
from onefold.run import RunFolder

NAME = "members"


def first_members(folder: Path) -> list[dict[str, Any]]:
    """{"members": m, "metrics": ...} for m = 1, ..., M."""
    each = teachers_stored(folder)
    return [{"members": m, "metrics": metrics_together(each[:m])} for m in range(1, len(each) + 1)]


def members(folder: Path) -> list[dict[str, Any]]:
    """The same, as stored, or measured and stored now."""
    count = len(list(folder.glob("teacher-*")))
    models = [RunFolder(folder / f"teacher-{m}").model for m in range(count)]
    if not all(model.exists() for model in models):
        return first_members(folder)  # which says what is missing; some of the teachers are no ensemble to store
    store = Measurements(folder, fingerprint(models))
    found = store.stored(NAME)
    if found is None:
        found = {"rows": first_members(folder)}
        store.write(NAME, found)
    rows: list[dict[str, Any]] = found["rows"]
    return rows
