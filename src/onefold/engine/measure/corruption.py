"""Accuracy, likelihood and calibration on corrupted images, generated here or published."""

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
from onefold.engine.measure.progress import Counting, Failure, Told, reason_of
from onefold.engine.measure.subject import Subject, Target
from onefold.metrics import Classification

NAME = "corruption"
SEED = 0
SEVERITIES = range(1, 6)
GENERATED = f"generated, seed {SEED}"
Batch = tuple[Tensor, Tensor]


@dataclass(eq=False)
class Rows:
    """A subject's results so far: by "NAME SEVERITY", a row for each target. After an error it is not run any more."""

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
        # The main target comes last, because writing it deletes the partial results.
        for number, target in reversed(list(enumerate(self.subject.targets))):
            target.store.write(NAME, self.about | {"rows": [each[number] for each in self.found.values()]})


@contextlib.contextmanager
def noting(failing: Sequence[Rows]) -> Iterator[None]:
    """Records an error inside as the end of these subjects, so that the others go on."""
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
    """Measures every corruption at every severity that is not stored yet, for subjects that share their data; reports
    what cannot be done in `told`.

    `any_source`: stored results count wherever their images came from.
    """
    todo: list[Rows] = []
    for subject in subjects:
        if not subject.images:
            why = "was trained on features, but only images can be corrupted"
            told.left_out.append(f"corruption: {subject.path} {why}")
        elif measured_already(subject.targets, folder, any_source=any_source):
            progress.message(f"corruption: already stored for {subject.path}")
        else:
            todo.append(begun(subject, folder, progress))
    if not todo:
        return
    with noting(todo):
        ask(todo, data, folder, progress)
    for rows in going(todo):
        with noting([rows]):
            rows.finish()
    ended = [(rows.subject.path, rows.error) for rows in todo if rows.error is not None]
    told.failed.extend(Failure(NAME, path, reason_of(error)) for path, error in ended)


def begun(subject: Subject, folder: Path | None, progress: Counting) -> Rows:
    """The rows of a subject, with the results of an interrupted measurement."""
    about = {"source": source_of(folder)}
    rows = Rows(subject, about, subject.main.store.parts(NAME, about))
    if rows.found:
        progress.message(f"corruption: resuming after {len(rows.found)} corruptions and severities of {subject.path}")
    return rows


def ask(todo: Sequence[Rows], data: RunData, folder: Path | None, progress: Counting) -> None:
    """Generates or reads every set once, batch by batch, and runs all subjects that lack it."""
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
    """Measures these subjects, which are on one device, on a set of uint8 images and labels."""
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
    """Updates the metrics of every target with a batch."""
    logits = subject.served(fitted(as_input(images), subject))
    for target, own in zip(subject.targets, metrics, strict=True):
        own.update(target.predict(logits), labels)


def source_of(folder: Path | None) -> str:
    return GENERATED if folder is None else f"{folder.name} (published)"


def measured_already(targets: Sequence[Target], folder: Path | None, *, any_source: bool = False) -> bool:
    """Whether everything is stored for images from this source, without building any network."""
    found = [target.store.stored(NAME) for target in targets]
    return all(each is not None and (any_source or each["source"] == source_of(folder)) for each in found)


def kept(metrics: dict[str, float]) -> dict[str, float]:
    return {name: metrics[name] for name in ("acc", "nll", "ece")} | {"count": int(metrics["count"])}


def sets(data: RunData, folder: Path | None, done: set[str]) -> Iterator[tuple[str, int, Iterator[Batch]]]:
    """Yields "NAME SEVERITY", the number of sets, and batches, which are generated or read only when consumed."""
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
    block = max(1, PIXELS // (height * width))  # a partial block takes as long as a whole one
    size = block * max(1, min(512, NUMBERS // (subject.channels * height * width)) // block)
    source = data.read()
    place: dict[str, Any] = {"device": subject.device, "workers": data.workers, "classes": subject.classes}
    first = 0
    for x, labels in loader_for(source.test, size, train=False, augment=source.augment, **place).batches():
        yield corrupt((255 * x).round().to(torch.uint8), name, severity, SEED, first), labels
        first += len(x)


def published_sets(subject: Subject, folder: Path, done: set[str]) -> Iterator[tuple[str, int, Iterator[Batch]]]:
    """The sets of a published folder, except corruptions that are already done at every severity."""
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
