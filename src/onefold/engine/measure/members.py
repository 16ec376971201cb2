"""Ensembles of the first m teachers, DE-1 to DE-M, from their stored predictions alone."""

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
    """`first_members`, read from the folder, or computed and stored now."""
    count = len(list(folder.glob("teacher-*")))
    models = [RunFolder(folder / f"teacher-{m}").model for m in range(count)]
    if not all(model.exists() for model in models):
        return first_members(folder)  # raises an error about what is missing; an incomplete ensemble is not stored
    store = Measurements(folder, fingerprint(models))
    found = store.stored(NAME)
    if found is None:
        found = {"rows": first_members(folder)}
        store.write(NAME, found)
    rows: list[dict[str, Any]] = found["rows"]
    return rows
