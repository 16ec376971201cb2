"""Teachers that lie side by side, as ensembles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from onefold.predictions import stored
from onefold.report.answers import SPEED, Answers
from onefold.report.measured import Measured, measured_together
from onefold.report.measurements import Measurements, read_measurements
from onefold.run import RunFolder


def ensembles(teachers: Sequence[Answers]) -> list[Answers]:
    """The ensembles of the first 2, 3, ... M of some teachers: the mean of their probabilities."""
    first = teachers[0]
    if len(teachers) < 2:
        return []
    for other in teachers[1:]:
        if other.setting != first.setting:
            raise ValueError(
                f"{other.paths[0]} and {first.paths[0]}: expected teachers of one ensemble side by side, got another "
                "recipe"
            )
    tests, vals = (
        [stored(RunFolder(one.paths[0]).predictions_file(split)) for one in teachers] for split in ("test", "val")
    )
    complete = all(val is not None for val in vals)
    every = measured_together([t for t in tests if t is not None], [v for v in vals if v is not None and complete])
    parent = first.paths[0].parent
    times = optional(RunFolder(parent), SPEED, []).get("ms_per_image")
    measurements = read_measurements(parent)
    return [
        replace(
            first,
            label=f"ensemble of {m}",
            kind="ensemble",
            members=m,
            setting=first.setting | {"members": m},
            paths=tuple(one.paths[0] for one in teachers[:m]),
            **shown(every[m - 1]),
            seconds=summed([one.seconds for one in teachers[:m]]),
            # Each network is asked in turn: without a measurement of its own, the ensemble takes as long as they do.
            ms_per_image=(times if m == len(teachers) else None) or summed([t.ms_per_image for t in teachers[:m]]),
            log=(),
            measurements=measurements if m == len(teachers) else Measurements(),
            compact=any(one.compact for one in teachers[:m]),
        )
        for m in range(2, len(teachers) + 1)
    ]


def summed(values: list[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return sum(present) if len(present) == len(values) else None


def shown(numbers: Measured) -> dict[str, Any]:
    return {
        "metrics": numbers.metrics,
        "before": numbers.before,
        "after": numbers.after,
        "examples": numbers.examples,
    }


def optional(folder: RunFolder, name: str, notes: list[str]) -> dict[str, Any]:
    try:
        return folder.read_json(name) if (folder.path / name).exists() else {}
    except (ValueError, OSError) as error:
        notes.append(str(error))
        return {}
