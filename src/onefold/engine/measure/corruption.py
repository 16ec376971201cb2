"""Accuracy, likelihood and calibration under corruption: generated here, or as published."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from onefold.data import loader_for
from onefold.data.augment import as_input
from onefold.data.split import check_range
from onefold.engine.measure.inputs import NUMBERS, RunData, fitted
from onefold.engine.measure.progress import Counting
from onefold.engine.measure.subject import Subject, Target
from onefold.metrics import Classification

NAME = "corruption"
SEED = 0
SEVERITIES = range(1, 6)
GENERATED = f"generated, seed {SEED}"
Batch = tuple[Tensor, Tensor]


def corruption(
    subject: Subject, data: RunData, folder: Path | None, progress: Counting, *, any_source: bool = False
) -> str | None:
    """Measures every corruption at every severity that is not stored yet; a sentence where that cannot be done.

    `any_source`: what is stored counts, wherever its images came from.
    """
    if not subject.images:
        return f"corruption: {subject.path} was trained on features, and only images can be corrupted"
    if measured_already(subject.targets, folder, any_source=any_source):
        progress.message(f"corruption: stored already for {subject.path}")
        return None
    about: dict[str, Any] = {"source": source_of(folder)}
    store = subject.main.store
    rows: dict[str, list[Any]] = store.parts(NAME, about)  # of each target, by "NAME SEVERITY"
    done = set(rows)
    if done:
        progress.message(f"corruption: going on after {len(done)} corruptions and severities of {subject.path}")
    for place, (key, total, batches) in enumerate(sets(subject, data, folder, done)):
        if key in done:
            continue
        progress.count(place, total, key)
        name, severity = key.rsplit(" ", 1)
        at = {"corruption": name, "severity": int(severity)}
        rows[key] = [at | kept(metrics) for metrics in metrics_under(subject, batches)]
        store.write_parts(NAME, about, rows)
    progress.count(1, 1)
    # The main one comes last: it forgets what was done in parts.
    for number, target in reversed(list(enumerate(subject.targets))):
        target.store.write(NAME, about | {"rows": [each[number] for each in rows.values()]})
    return None


def source_of(folder: Path | None) -> str:
    return GENERATED if folder is None else f"{folder.name} (published)"


def measured_already(targets: Sequence[Target], folder: Path | None, *, any_source: bool = False) -> bool:
    """Whether everything is stored, of images from there; no network is needed to tell."""
    found = [target.store.stored(NAME) for target in targets]
    return all(each is not None and (any_source or each["source"] == source_of(folder)) for each in found)


def kept(metrics: dict[str, float]) -> dict[str, float]:
    return {name: metrics[name] for name in ("acc", "nll", "ece")} | {"count": int(metrics["count"])}


@torch.no_grad()
def metrics_under(subject: Subject, batches: Iterator[Batch]) -> list[dict[str, float]]:
    """The metrics of every target over uint8 images and labels."""
    each = [Classification(subject.classes) for _ in subject.targets]
    for images, labels in batches:
        logits = subject.served(fitted(as_input(images.to(subject.device)), subject))
        for target, metrics in zip(subject.targets, each, strict=True):
            metrics.update(target.predict(logits), labels.to(subject.device))
    return [metrics.compute() for metrics in each]


def sets(
    subject: Subject, data: RunData, folder: Path | None, done: set[str]
) -> Iterator[tuple[str, int, Iterator[Batch]]]:
    """ "NAME SEVERITY", how many there are of them, and the images, which are made or read only if they are taken."""
    if folder is None:
        from onefold.data.corrupt import CORRUPTIONS, EXTRA

        names = [*CORRUPTIONS, *EXTRA]
        for name, severity in itertools.product(names, SEVERITIES):
            yield f"{name} {severity}", len(names) * len(SEVERITIES), generated(subject, data, name, severity)
    else:
        yield from published_sets(subject, folder, done)


def generated(subject: Subject, data: RunData, name: str, severity: int) -> Iterator[Batch]:
    """The test split, corrupted."""
    from onefold.data.corrupt import corrupt
    from onefold.data.corrupt.apply import PIXELS

    height, width = subject.image_size
    block = max(1, PIXELS // (height * width))  # what is not a whole block takes as long as one
    size = block * max(1, min(512, NUMBERS // (subject.channels * height * width)) // block)
    source = data.read()
    place: dict[str, Any] = {"device": subject.device, "workers": data.workers, "classes": subject.classes}
    first = 0
    for x, labels in loader_for(source.test, size, train=False, augment=source.augment, **place).batches():
        yield corrupt((255 * x).round().to(torch.uint8), name, severity, SEED, first), labels
        first += len(x)


def published_sets(subject: Subject, folder: Path, done: set[str]) -> Iterator[tuple[str, int, Iterator[Batch]]]:
    """The sets of a folder as distributed, without corruptions that are done at every severity."""
    from onefold.data.corrupt import CORRUPTIONS, EXTRA, published

    extra = [name for name in EXTRA if (folder / name).exists() or (folder / f"{name}.npy").exists()]
    every = [*CORRUPTIONS, *extra]
    names = [name for name in every if not all(f"{name} {severity}" in done for severity in SEVERITIES)]
    total = len(names) * len(SEVERITIES)
    size = max(1, min(500, NUMBERS // max(1, subject.channels * subject.image_size[0] * subject.image_size[1])))

    def batches(pieces: Iterator[tuple[str, int, Tensor, Tensor]]) -> Iterator[Batch]:
        for _, _, images, labels in pieces:
            check_range(labels, range(subject.classes), (str(folder) + ", label {}").format)
            yield from zip(images.split(size), labels.split(size), strict=True)

    for (name, severity), pieces in itertools.groupby(published(folder, names), key=lambda piece: (piece[0], piece[1])):
        yield f"{name} {severity}", total, batches(pieces)
