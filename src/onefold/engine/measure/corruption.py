"""Accuracy, likelihood and calibration under corruption: generated here, or as published."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from onefold.data import loader_for
from onefold.data.augment import as_input
from onefold.data.split import check_range
from onefold.engine.measure.inputs import NUMBERS, RunData, fitted
from onefold.engine.measure.progress import Counting, Told
from onefold.engine.measure.subject import Subject, Target
from onefold.metrics import Classification

NAME = "corruption"
SEED = 0
SEVERITIES = range(1, 6)
GENERATED = f"generated, seed {SEED}"
Batch = tuple[Tensor, Tensor]


@dataclass(eq=False)
class Rows:
    """What there is of a subject: a row of each target, by "NAME SEVERITY". Who fails is not asked any more."""

    subject: Subject
    about: dict[str, Any]
    found: dict[str, list[Any]]
    error: Exception | None = None

    def keep(self, key: str, metrics: Sequence[Classification]) -> None:
        name, severity = key.rsplit(" ", 1)
        at = {"corruption": name, "severity": int(severity)}
        self.found[key] = [at | kept(each.compute()) for each in metrics]
        self.subject.main.store.write_parts(NAME, self.about, self.found)

    def finish(self) -> None:
        # The main one comes last: it forgets what was done in parts.
        for number, target in reversed(list(enumerate(self.subject.targets))):
            target.store.write(NAME, self.about | {"rows": [each[number] for each in self.found.values()]})


@contextlib.contextmanager
def noting(failing: Sequence[Rows]) -> Iterator[None]:
    """What goes wrong inside is the end for these, and not for the others."""
    try:
        yield
    except (ValueError, OSError, RuntimeError) as error:
        for rows in going(failing):
            rows.error = error


def going(todo: Sequence[Rows]) -> list[Rows]:
    return [rows for rows in todo if rows.error is None]


def corruption(
    subjects: Sequence[Subject],
    data: RunData,
    folder: Path | None,
    progress: Counting,
    told: Told,
    *,
    any_source: bool = False,
) -> None:
    """Measures every corruption at every severity that is not stored yet, of subjects that share their data; adds to
    `told` what cannot be done.

    `any_source`: what is stored counts, wherever its images came from.
    """
    todo: list[Rows] = []
    for subject in subjects:
        if not subject.images:
            why = "was trained on features, and only images can be corrupted"
            told.left_out.append(f"corruption: {subject.path} {why}")
        elif measured_already(subject.targets, folder, any_source=any_source):
            progress.message(f"corruption: stored already for {subject.path}")
        else:
            todo.append(begun(subject, folder, progress))
    if not todo:
        return
    with noting(todo):
        ask(todo, data, folder, progress)
    for rows in going(todo):
        with noting([rows]):
            rows.finish()
    told.failed.extend(f"{NAME} of {rows.subject.path}: {rows.error}" for rows in todo if rows.error is not None)


def begun(subject: Subject, folder: Path | None, progress: Counting) -> Rows:
    """With what an interrupted measurement had got."""
    about = {"source": source_of(folder)}
    rows = Rows(subject, about, subject.main.store.parts(NAME, about))
    if rows.found:
        progress.message(f"corruption: going on after {len(rows.found)} corruptions and severities of {subject.path}")
    return rows


def ask(todo: Sequence[Rows], data: RunData, folder: Path | None, progress: Counting) -> None:
    """Makes or reads every set once, a batch at a time, and asks all who lack it."""
    done = set.intersection(*(set(rows.found) for rows in todo))
    for place, (key, total, batches) in enumerate(sets(data, folder, done)):
        if not going(todo):
            return
        lacking = [rows for rows in going(todo) if key not in rows.found]
        if not lacking:
            continue
        progress.count(place, total, key)
        ask_about(key, batches, lacking)
    progress.count(1, 1)


@torch.no_grad()
def ask_about(key: str, batches: Iterator[Batch], lacking: Sequence[Rows]) -> None:
    """All of them, which are on one device, about a set of uint8 images and labels."""
    metrics = {rows: [Classification(rows.subject.classes) for _ in rows.subject.targets] for rows in lacking}
    device = lacking[0].subject.device
    for images, labels in batches:
        x, y = images.to(device), labels.to(device)
        for rows in going(lacking):
            with noting([rows]):
                update(metrics[rows], rows.subject, x, y)
        if not going(lacking):
            return
    for rows in going(lacking):
        with noting([rows]):
            rows.keep(key, metrics[rows])


def update(metrics: Sequence[Classification], subject: Subject, images: Tensor, labels: Tensor) -> None:
    """The metrics of every target."""
    logits = subject.served(fitted(as_input(images), subject))
    for target, own in zip(subject.targets, metrics, strict=True):
        own.update(target.predict(logits), labels)


def source_of(folder: Path | None) -> str:
    return GENERATED if folder is None else f"{folder.name} (published)"


def measured_already(targets: Sequence[Target], folder: Path | None, *, any_source: bool = False) -> bool:
    """Whether everything is stored, of images from there; no network is needed to tell."""
    found = [target.store.stored(NAME) for target in targets]
    return all(each is not None and (any_source or each["source"] == source_of(folder)) for each in found)


def kept(metrics: dict[str, float]) -> dict[str, float]:
    return {name: metrics[name] for name in ("acc", "nll", "ece")} | {"count": int(metrics["count"])}


def sets(data: RunData, folder: Path | None, done: set[str]) -> Iterator[tuple[str, int, Iterator[Batch]]]:
    """ "NAME SEVERITY", how many there are of them, and the images, which are made or read only if they are taken."""
    if folder is None:
        from onefold.data.corrupt import CORRUPTIONS, EXTRA

        names = [*CORRUPTIONS, *EXTRA]
        for name, severity in itertools.product(names, SEVERITIES):
            yield f"{name} {severity}", len(names) * len(SEVERITIES), generated(data, name, severity)
    else:
        yield from published_sets(data.subject, folder, done)


def generated(data: RunData, name: str, severity: int) -> Iterator[Batch]:
    """The test split, corrupted."""
    from onefold.data.corrupt import corrupt
    from onefold.data.corrupt.apply import PIXELS

    subject = data.subject
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
