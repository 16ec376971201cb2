"""Reads and checks what `onefold evaluate` has measured: the files in the folder `measurements` of a run."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER, VERSION = "measurements", 1
Numbers = tuple[float, ...]


@dataclass(frozen=True)
class Corrupted:
    """Metrics of one corruption at one severity."""

    corruption: str
    severity: int
    metrics: dict[str, float]  # acc, nll, ece


@dataclass(frozen=True)
class Corruption:
    source: str
    rows: tuple[Corrupted, ...]


@dataclass(frozen=True)
class Histogram:
    edges: Numbers
    counts: Numbers


@dataclass(frozen=True)
class Outside:
    """An out-of-distribution data set."""

    name: str
    entropy: Histogram
    scores: dict[str, dict[str, float]]  # auroc, aupr, fpr95 for each score


@dataclass(frozen=True)
class Ood:
    name: str
    entropy: Histogram
    sets: tuple[Outside, ...]


@dataclass(frozen=True)
class Curve:
    split: str
    reestimated: bool
    error: Numbers
    nll: Numbers


@dataclass(frozen=True)
class Plane:
    """Values `[len(b)][len(a)]` on a plane through three members, and the positions of networks on it."""

    a: Numbers
    b: Numbers
    error: tuple[Numbers, ...]
    nll: tuple[Numbers, ...]
    points: dict[str, Numbers]


@dataclass(frozen=True)
class Subspace:
    members: tuple[int, ...]
    t: Numbers
    curves: tuple[Curve, ...]
    average_t: float | None
    average: dict[str, dict[str, float]]  # train, test, train_reestimated, test_reestimated: error, nll
    plane: Plane | None
    counts: dict[str, int] = field(default_factory=dict)  # images: train, test, plane; empty in old files


@dataclass(frozen=True)
class Health:
    """The averaging health check: on the validation split at the end of a run, or on the test split on request."""

    rows: tuple[tuple[str, dict[str, float]], ...]
    warning: str | None
    split: str


@dataclass(frozen=True)
class Costs:
    device: str
    train_seconds: float | None
    inference: tuple[tuple[str, int, float], ...]  # what was timed, batch size, milliseconds per image


@dataclass(frozen=True)
class Measurements:
    """All measurements that exist for a run."""

    corruption: Corruption | None = None
    ood: Ood | None = None
    subspace: Subspace | None = None
    health: Health | None = None
    costs: Costs | None = None
    problems: tuple[str, ...] = field(default=())


def read_measurements(run: Path, first: int | None = None) -> Measurements:
    """Reads all measurements of a run; for each file that cannot be read, there is a sentence in `problems`.

    For a folder of teachers, `first` selects the measurements of the ensemble of the first so many.
    """
    folder = run / FOLDER / ("" if first is None else f"first-{first}")
    read: dict[str, Callable[[dict[str, Any]], Any]] = {
        "corruption": corruption,
        "ood": ood,
        "subspace": subspace,
        "health": health,
        "costs": costs,
    }
    found: dict[str, Any] = {}
    problems = []
    for name, parse in read.items():
        path = folder / f"{name}.json"
        if not path.exists():
            continue
        try:
            content = json.loads(path.read_text())
            if content.get("version") != VERSION:
                problems.append(f"{path} has version {content.get('version')}, but only version {VERSION} can be read")
                continue
            found[name] = parse(content)
        except (ValueError, TypeError, LookupError, AttributeError, OSError):
            problems.append(f"{path} is damaged and is left out; measure it again")
    return Measurements(**found, problems=tuple(problems))


def corruption(content: dict[str, Any]) -> Corruption:
    rows = [
        Corrupted(str(row["corruption"]), int(row["severity"]), metrics_in(row, "acc", "nll", "ece"))
        for row in content["rows"]
    ]
    if not rows:
        raise ValueError("no rows")
    return Corruption(str(content["source"]), tuple(rows))


def ood(content: dict[str, Any]) -> Ood:
    sets = [
        Outside(
            str(each["name"]),
            histogram(each["entropy"]),
            {str(name): metrics_in(score, "auroc", "aupr", "fpr95") for name, score in each["scores"].items()},
        )
        for each in content["sets"]
    ]
    inside = content["inside"]
    return Ood(str(inside["name"]), histogram(inside["entropy"]), tuple(sets))


def histogram(content: dict[str, Any]) -> Histogram:
    edges, counts = numbers(content["edges"]), numbers(content["counts"])
    if len(edges) != len(counts) + 1 or not sum(counts):
        raise ValueError("edges and counts that do not fit")
    return Histogram(edges, counts)


def subspace(content: dict[str, Any]) -> Subspace:
    t, average = numbers(content["t"]), content["average"]
    curves = [
        Curve(str(c["split"]), bool(c["reestimated"]), numbers(c["error"], len(t)), numbers(c["nll"], len(t)))
        for c in content["curves"]
    ]
    points = {
        name: dict(zip(("error", "nll"), numbers([point["error"], point["nll"]]), strict=True))
        for name, point in average.items()
        if isinstance(point, dict)
    }
    at = average.get("t")
    members = tuple(int(m) for m in content["members"])
    plane = None if content.get("plane") is None else plane_of(content["plane"])
    counts = {str(name): int(count) for name, count in content.get("count", {}).items()}
    return Subspace(members, t, tuple(curves), None if at is None else float(at), points, plane, counts)


def plane_of(content: dict[str, Any]) -> Plane:
    a, b = numbers(content["a"]), numbers(content["b"])

    def values(name: str) -> tuple[Numbers, ...]:
        found = tuple(numbers(row, len(a)) for row in content[name])
        if len(found) != len(b):
            raise ValueError(f"{len(found)} rows for {len(b)} values of b")
        return found

    points = {str(name): numbers(point, 2) for name, point in content["points"].items()}
    return Plane(a, b, values("error"), values("nll"), points)


def health(content: dict[str, Any]) -> Health:
    rows = [(f"member {m}", each) for m, each in enumerate(content["members"])]
    names = {"ensemble": "members together", "collapsed": "averaged network"}
    names["collapsed_reestimated"] = "averaged, BatchNorm re-estimated"
    rows += [(shown, content[name]) for name, shown in names.items() if content.get(name)]
    warning = content.get("warning")
    found = tuple((name, metrics_in(each, "acc", "nll", "ece")) for name, each in rows)
    return Health(found, str(warning) if warning else None, str(content.get("split", "val")))


def costs(content: dict[str, Any]) -> Costs:
    inference = [(str(c["what"]), int(c["batch"]), float(c["ms_per_image"])) for c in content["inference"]]
    seconds = content.get("train_seconds")
    return Costs(str(content["device"]), None if seconds is None else float(seconds), tuple(inference))


def numbers(values: Any, count: int | None = None) -> Numbers:
    """Reads numbers; null stands for one that was not finite, which JSON cannot express."""
    found = tuple(math.nan if value is None else float(value) for value in values)
    if count is not None and len(found) != count:
        raise ValueError(f"expected {count} numbers, got {len(found)}")
    return found


def metrics_in(content: dict[str, Any], *names: str) -> dict[str, float]:
    return {name: float(content[name]) for name in names}
