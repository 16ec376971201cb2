"""Runs all the measurements of some folders."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from onefold.engine.measure.corruption import corruption
from onefold.engine.measure.costs import costs
from onefold.engine.measure.health import health
from onefold.engine.measure.inputs import DataOptions, RunData
from onefold.engine.measure.ood import Unmeasured, ood
from onefold.engine.measure.progress import Counting, Failure, Told, reason_of
from onefold.engine.measure.subject import Folder, Subject, subject_of
from onefold.engine.measure.subspace import subspace

Measurement = Callable[[], str | Sequence[str] | None]


@dataclass(frozen=True)
class Wanted:
    """What to measure. `everything` accepts stored results on corruptions, wherever their images came from."""

    corruptions: bool = False
    corrupted: Path | None = None
    ood: dict[str, str] = field(default_factory=dict)
    subspace: bool = False
    health: bool = False
    costs: bool = False
    everything: bool = False
    images: int = 10_000
    data: DataOptions = field(default_factory=DataOptions)

    def __post_init__(self) -> None:
        if self.images < 2:
            raise ValueError(f"images: expected at least 2, got {self.images}")
        if self.corrupted is not None and not self.corrupted.is_dir():
            raise ValueError(
                f"corrupted: expected a folder such as CIFAR-10-C, got {self.corrupted}, which does not exist"
            )

    @property
    def anything(self) -> bool:
        return self.corrupted_images or bool(self.ood) or self.subspace or self.health or self.costs

    @property
    def corrupted_images(self) -> bool:
        return self.corruptions or self.corrupted is not None or self.everything


def measure_runs(
    folders: Sequence[Folder], wanted: Wanted, device: torch.device, stage: Callable[[str], Counting]
) -> Told:
    """Measures what is wanted and not stored yet, and continues with the rest if something fails.

    The folders are one of the `groups`. They stay locked, and their networks on the device, until all is measured.
    `stage` makes the object that a measurement reports its progress to.
    """
    told = Told()
    with contextlib.ExitStack() as locks:
        subjects = []
        for folder in folders:
            try:
                subject = subject_of(folder, device)
                locks.enter_context(subject.held())
            except (ValueError, OSError, RuntimeError) as error:  # such as mismatched weights, or too little memory
                named = f"{folder.path}: " if isinstance(error, RuntimeError) else ""
                told.refused[folder.path] = named + reason_of(error)
            else:
                subjects.append(subject)
        if subjects:
            measure(subjects, wanted, stage, told)
    return told


def measure(subjects: Sequence[Subject], wanted: Wanted, stage: Callable[[str], Counting], told: Told) -> None:
    """Measures corruptions for all subjects together, and everything else one subject at a time."""
    shown = subjects[0].path.name if len(subjects) == 1 else f"{len(subjects)} runs"
    looking = stage(f"{shown}: reading {subjects[0].recipe.data.source}")
    data = RunData(subjects[0], wanted.data, lambda done, total: looking.count(done, total))
    for subject in subjects:
        for name, measurement in apart(subject, data, wanted, stage).items():
            try:
                found = measurement()
            except Unmeasured as error:
                told.failed.extend(Failure(name, subject.path, why, part) for part, why in error.parts.items())
            except (ValueError, OSError) as error:
                told.failed.append(Failure(name, subject.path, reason_of(error)))
            else:
                told.left_out.extend([found] if isinstance(found, str) else found or ())
    if wanted.corrupted_images:
        kept = not wanted.corruptions and wanted.corrupted is None
        corruption(subjects, data, wanted.corrupted, stage(f"{shown}: corruptions"), told, any_source=kept)


def apart(subject: Subject, data: RunData, wanted: Wanted, stage: Callable[[str], Counting]) -> dict[str, Measurement]:
    """The measurements of a single subject; each returns messages about what it leaves out."""
    shown, every = subject.path.name, wanted.everything
    todo: dict[str, Measurement] = {}
    if wanted.costs or every:
        todo["costs"] = lambda: costs(subject, stage(f"{shown}: costs"))
    if wanted.health or every:
        todo["health"] = lambda: health(subject, data, stage(f"{shown}: health"))
    if wanted.ood:
        todo["out of distribution"] = lambda: ood(subject, data, wanted.ood, stage(f"{shown}: out of distribution"))
    elif every:
        todo["out of distribution"] = lambda: "out of distribution: not measured, because --ood names no other images"
    if wanted.subspace or every:
        todo["subspace"] = lambda: subspace(subject, data, wanted.images, stage(f"{shown}: subspace"))
    return todo
