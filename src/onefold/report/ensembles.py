"""Teachers in the same folder, as ensembles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from onefold.predictions import stored
from onefold.report.answers import SPEED, Answers
from onefold.report.measured import Measured, measured_together
from onefold.report.measurements import read_measurements
from onefold.run import RunFolder

NAMED = "teacher-"


def ensembles(teachers: Sequence[Answers], notes: list[str]) -> list[Answers]:
    """The ensembles of the first 1, 2, ... M teachers: the mean of their probabilities.

    The ensemble of one, the paper's DE-1, is the first teacher; it is included to be compared with larger ones.
    """
    teachers = in_a_row(teachers, notes)
    if len(teachers) < 2:
        return []
    first = teachers[0]
    for other in teachers[1:]:
        if recipe_of(other) != recipe_of(first):
            raise ValueError(
                f"{other.paths[0]} and {first.paths[0]}: expected the same recipe for all teachers in a folder, got "
                "different ones"
            )
    tests, vals = (
        [stored(RunFolder(one.paths[0]).predictions_file(split)) for one in teachers] for split in ("test", "val")
    )
    complete = all(val is not None for val in vals)
    every = measured_together([t for t in tests if t is not None], [v for v in vals if v is not None and complete])
    parent = first.paths[0].parent
    timed = optional(RunFolder(parent), SPEED, [])
    times = {timed.get("members", len(teachers)): timed.get("ms_per_image")}  # teachers may have been added since
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
            # Without a measurement of the ensemble, take the sum: networks run one after the other.
            ms_per_image=times.get(m) or summed([t.ms_per_image for t in teachers[:m]]),
            log=(),
            measurements=read_measurements(parent, m) if m > 1 else first.measurements,
            weights=tuple(one.weights[0] if one.weights else "" for one in teachers[:m]),
            compact=any(one.compact for one in teachers[:m]),
        )
        for m in range(1, len(teachers) + 1)
    ]


def recipe_of(answer: Answers) -> dict[str, Any]:
    """The settings, except for what belongs to the network: teachers may have different ones."""
    return {name: value for name, value in answer.setting.items() if name not in ("layers", "parameters")}


def in_a_row(teachers: Sequence[Answers], notes: list[str]) -> Sequence[Answers]:
    """teacher-0, teacher-1, ... up to the first that is missing, because ensembles are of the first m teachers."""
    names = [one.paths[0].name for one in teachers]
    numbers = [int(name.removeprefix(NAMED)) for name in names if name.removeprefix(NAMED).isdecimal()]
    if len(numbers) < len(names):
        return teachers  # a user's own names: keep the order
    count = next((place for place, number in enumerate(numbers) if place != number), len(numbers))
    if count < len(numbers):
        absent = teachers[0].paths[0].with_name(f"{NAMED}{count}")
        why = f"{absent.name} {'is not in this report' if absent.exists() else 'is missing'}"
        only = f"{why}, so there are only ensembles of the first {count}"
        notes.append(f"{absent.parent}: {only if count > 1 else f'no ensemble: {why}'}")
    return teachers[:count]


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
