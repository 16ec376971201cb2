"""Error and NLL in the subspace spanned by the members: on the line through two of them, and on a plane."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from onefold.data import Loader
from onefold.engine.measure.inputs import RunData
from onefold.engine.measure.progress import Counting
from onefold.engine.measure.subject import Subject
from onefold.engine.reestimate import reestimate, statistics_of
from onefold.ensemble import BatchEnsemble, interpolate
from onefold.ensemble.student import logits_of
from onefold.types import at_least_float32

NAME = "subspace"
T = [round(-0.5 + 0.1 * step, 10) for step in range(21)]  # -0.5 to 1.5
GRID = [round(-0.5 + 0.2 * step, 10) for step in range(11)]
IN_PLANE = 2000  # images for each of the 121 networks in the plane
Point = dict[str, float | None]


def subspace(subject: Subject, data: RunData, images: int, progress: Counting) -> str | None:
    """Measures the points that are not stored yet; returns a message if the student has no members."""
    if subject.student is None:
        return f"subspace: {subject.no_members}, so there is no line between members to measure"
    student, store = subject.student, subject.main.store
    about: dict[str, Any] = {"images": images, "statistics": "augmented"}
    if (stored := store.stored(NAME)) is not None and about.items() <= stored.items():
        progress.message(f"subspace: already stored for {subject.path}")
        return None
    parts = store.parts(NAME, about)
    if parts:
        progress.message(f"subspace: resuming after {len(parts)} points of {subject.path}")
    train, test = data.sampled("train", images), data.sampled("test", images)
    trained = data.sampled("train", images, train=True)  # augmented, as the members have seen them
    few = data.sampled("test", min(images, IN_PLANE))
    todo: dict[str, Callable[[], Any]] = {}
    for t in T:
        todo[f"t {t}"] = lambda t=t: on_line(student, line(student.members, t), train, test, trained)  # type: ignore[misc]
    todo["average"] = lambda: on_line(student, [1 / student.members] * student.members, train, test, trained)
    if student.members > 2:
        for a in GRID:
            for b in GRID:
                todo[f"a {a} b {b}"] = lambda a=a, b=b: error_and_nll(  # type: ignore[misc]
                    interpolate(student, plane(student.members, a, b)).eval(), few
                )
    for place, (key, measured) in enumerate(todo.items()):
        progress.count(place, len(todo), key)
        if key not in parts:
            parts[key] = measured()
            store.write_parts(NAME, about, parts)
    progress.count(len(todo), len(todo))
    about["count"] = {"train": train.examples, "test": test.examples, "plane": few.examples}
    store.write(NAME, about | assembled(parts, student.members))
    return None


def line(members: int, t: float) -> list[float]:
    """Coefficients: (1 - t) of member 0 and t of member 1."""
    return [1 - t, t, *[0.0] * (members - 2)]


def plane(members: int, a: float, b: float) -> list[float]:
    """Coefficients with member 0 at (0, 0), member 1 at (1, 0) and member 2 at (0, 1)."""
    return [1 - a - b, a, b, *[0.0] * (members - 3)]


def on_line(
    student: BatchEnsemble, coefficients: Sequence[float], train: Loader, test: Loader, trained: Loader
) -> dict[str, Any]:
    """Measures one network as it is and, if it has BatchNorm, with statistics re-estimated on augmented images."""
    net = interpolate(student, coefficients).eval()
    splits = {"train": train, "test": test}
    found = {split: error_and_nll(net, loader) for split, loader in splits.items()}
    if statistics_of(net):
        reestimate(net, (x for x, _ in trained.batches()))
        found |= {f"{split}_reestimated": error_and_nll(net, loader) for split, loader in splits.items()}
    return found


@torch.no_grad()
def error_and_nll(net: nn.Module, loader: Loader) -> Point:
    """The error rate and the mean NLL; None for both if the network's outputs are not finite, which may happen far from
    the members."""
    sums = torch.zeros(3, dtype=torch.float64)
    for x, labels in loader.batches():
        log_p = at_least_float32(logits_of(net, x)).log_softmax(-1)
        nll = -log_p.gather(1, labels[:, None])[:, 0].double().sum()
        wrong = (log_p.argmax(-1) != labels).double().sum()
        sums = sums.to(x.device) + torch.stack([torch.full_like(nll, len(x)), wrong, nll])
    count, wrong_ones, total = sums.tolist()
    finite = torch.isfinite(sums).all()
    return {"error": wrong_ones / count, "nll": total / count} if finite else {"error": None, "nll": None}


def assembled(parts: dict[str, Any], members: int) -> dict[str, Any]:
    """Arranges the points as curves and a grid."""
    each = [parts[f"t {t}"] for t in T]
    curves = []
    for split, again in (("train", False), ("test", False), ("train", True), ("test", True)):
        key = f"{split}_reestimated" if again else split
        if key in each[0]:
            values = {name: [point[key][name] for point in each] for name in ("error", "nll")}
            curves.append({"split": split, "reestimated": again} | values)
    return {
        "members": [0, 1],
        "t": T,
        "curves": curves,
        "average": {"t": 0.5 if members == 2 else None} | parts["average"],
        "plane": None if members < 3 else surface(parts),
    }


def surface(parts: dict[str, Any]) -> dict[str, Any]:
    """The grid: rows have the same b, columns the same a. Its average is of these three members, which is in the
    plane."""
    return {
        "members": [0, 1, 2],
        "split": "test",
        "a": GRID,
        "b": GRID,
        **{name: [[parts[f"a {a} b {b}"][name] for a in GRID] for b in GRID] for name in ("error", "nll")},
        "points": {"0": [0, 0], "1": [1, 0], "2": [0, 1], "average": [1 / 3, 1 / 3]},
    }
