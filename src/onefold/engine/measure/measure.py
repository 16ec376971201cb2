"""All measurements of some folders, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import torch

from onefold.engine.measure.corruption import corruption
from onefold.engine.measure.costs import costs
from onefold.engine.measure.health import health
from onefold.engine.measure.inputs import DataOptions, RunData
from onefold.engine.measure.ood import ood
from onefold.engine.measure.progress import Counting
from onefold.engine.measure.subject import subject_of
from onefold.engine.measure.subspace import subspace


@dataclass(frozen=True)
class Wanted:
    """What is to be measured. `everything` leaves stored corruptions as they are, wherever their images came from."""

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
                f"corrupted: expected a folder such as CIFAR-10-C, got {self.corrupted}, which is not there"
            )

    @property
    def anything(self) -> bool:
        networks = self.corruptions or self.corrupted is not None or bool(self.ood)
        return networks or self.subspace or self.health or self.costs or self.everything


class Told(NamedTuple):
    """Sentences: what makes no sense for a run, and what went wrong, most often because data are not there."""

    left_out: list[str]
    failed: list[str]


def measure_run(
    path: Path,
    wanted: Wanted,
    device: torch.device,
    stage: Callable[[str], Counting],
    teachers: int | None = None,
) -> Told:
    """Measures what is wanted of a folder and not stored yet, and goes on where something fails.

    `stage` gives what each measurement reports its progress to; `teachers` is how many of a folder of teachers count.
    """
    subject = subject_of(path, device, teachers)
    shown = path.name
    looking = stage(f"{shown}: looking at {subject.recipe.data.source}")
    data = RunData(subject, wanted.data, lambda done, total: looking.count(done, total))
    every = wanted.everything
    todo: dict[str, Callable[[], str | Sequence[str] | None]] = {}
    if wanted.costs or every:
        todo["costs"] = lambda: costs(subject, stage(f"{shown}: costs"))
    if wanted.health or every:
        todo["health"] = lambda: health(subject, data, stage(f"{shown}: health"))
    if wanted.ood:
        todo["out of distribution"] = lambda: ood(subject, data, wanted.ood, stage(f"{shown}: out of distribution"))
    elif every:
        todo["out of distribution"] = lambda: "out of distribution: nothing says where other images are; give --ood"
    if wanted.corruptions or wanted.corrupted is not None or every:
        kept = every and not wanted.corruptions and wanted.corrupted is None
        shows = stage(f"{shown}: corruptions")
        todo["corruption"] = lambda: corruption(subject, data, wanted.corrupted, shows, any_source=kept)
    if wanted.subspace or every:
        todo["subspace"] = lambda: subspace(subject, data, wanted.images, stage(f"{shown}: subspace"))
    told = Told([], [])
    with subject.held():
        for name, measurement in todo.items():
            try:
                found = measurement()
            except (ValueError, OSError) as error:
                told.failed.append(f"{name} of {path}: {error}")
            else:
                told.left_out.extend([found] if isinstance(found, str) else found or ())
    return told
