"""How far apart the members are while they learn, and what the perturbation does to that: lines for the log."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from onefold.data import Split, loader_for
from onefold.data.order import draw_seed
from onefold.data.sample import sample
from onefold.engine.device import own_randomness
from onefold.methods import AnyStudent, with_hyperparameters
from onefold.metrics import diversity
from onefold.perturb import DRAWS, none
from onefold.types import Ensemble, Perturbation

if TYPE_CHECKING:
    from onefold.engine.training import Job

FEWEST, MOST = 64, 256  # images of each split
NUMBERS = 1 << 23  # in the images that are kept: of large ones there are fewer
SHARE = 0.01  # of the examples a run learns from: an image costs about as much to measure as to learn from


@dataclass(eq=False)
class DiversityLog:
    """Looks at the same images of train and val every so many epochs, with random numbers of its own."""

    job: Job
    student: AnyStudent
    perturb: Perturbation | None
    count: int  # images of each split
    every: int
    images: dict[str, Tensor] | None = None  # by split, read when they are first wanted

    def due(self, epoch: int) -> bool:
        return epoch % self.every == 0

    def records(self, step: int, epoch: int) -> list[dict[str, Any]]:
        """Div of the members on both splits, and how much the perturbation changes TDiv and SDiv on train.

        Both are of all pairs of members, which is what a pair drawn by the perturbation gives on average. All
        processes have to ask, in step; the training's random numbers stand as before.
        """
        job = self.job
        job.world.rest()
        with own_randomness(job.device):
            torch.manual_seed(draw_seed("diversity", job.settings.seed, step))
            if self.images is None:
                self.images = {name: x for name, x in self.read().items() if x is not None}
            found = []
            at: dict[str, Any] = {"step": step, "epoch": epoch}
            if self.student.members > 1 and self.images:
                members, images = self.student.at_rest, self.images
                of = {f"{name}_div": self.mean(members, images.get(name)) for name in ("train", "val")}
                found.append({"kind": "diversity"} | at | of)
            if self.perturb is not None and "train" in self.images:
                about = {"kind": "perturbation"} | at | {"name": job.perturbation.name}
                found.append(about | self.changes(self.images["train"]))
        return found

    def read(self) -> dict[str, Tensor | None]:
        settings = self.job.settings
        return {
            name: None
            if split is None
            else images_of(split, self.job, self.count, draw_seed("diversity", settings.seed))
            for name, split in {"train": self.job.train, "val": self.job.val}.items()
        }

    def pieces(self, x: Tensor) -> Sequence[Tensor]:
        """No more at once than a training step has."""
        optim = self.job.settings.optim
        pieces: Sequence[Tensor] = x.split(max(1, optim.batch_size // optim.accumulate))
        return pieces

    @torch.no_grad()
    def mean(self, ensemble: Ensemble, x: Tensor | None) -> float | None:
        return None if x is None else float(torch.cat([diversity(ensemble(part)) for part in self.pieces(x)]).mean())

    def changes(self, x: Tensor) -> dict[str, float | None]:
        """Means over the images: TDiv and SDiv, and what moving the images adds to them."""
        assert self.perturb is not None
        teachers, student = self.job.teachers, self.student
        moved = torch.cat([self.perturb(part, teachers, student).detach() for part in self.pieces(x)])
        found: dict[str, float | None] = {}
        for name, ensemble in {"tdiv": teachers, "sdiv": student.at_rest}.items():
            apart = ensemble is not None and ensemble.members > 1
            before, after = (self.mean(ensemble, of) if apart and ensemble is not None else None for of in (x, moved))
            found[name] = before
            found[f"{name}_change"] = None if before is None or after is None else after - before
        return found


def diversity_log(job: Job, student: AnyStudent, examples: int) -> DiversityLog | None:
    """The log of a training, where it has anything to compare and was not told to leave it.

    If nothing is said, so seldom that it looks at 1% of what the training learns from at most.
    """
    every, teachers = job.settings.diversity_every, 1 if job.teachers is None else job.teachers.members
    perturbs = job.perturbation.perturb is not none and max(teachers, student.members) > 1
    if every == 0 or not (perturbs or student.members > 1):
        return None
    count = min(MOST, max(FEWEST, int(SHARE * examples)))
    if every is None:
        every = max(1, math.ceil(count / (SHARE * examples)))
    perturb: Perturbation | None = None
    if perturbs:
        s = job.settings
        known: dict[str, Any] = {"alpha": s.alpha, "temperature": s.temperature, "cap": s.cap}
        perturb = with_hyperparameters(job.perturbation.perturb, **known, space=job.space, draws=DRAWS)
    return DiversityLog(job, student, perturb, count, every)


@torch.no_grad()
def images_of(split: Split, job: Job, count: int, seed: int) -> Tensor | None:
    """The same images every time, as evaluation sees them; None of a user's loader, whose draws are its own."""
    chosen = sample(split, count, seed)
    if chosen is None:
        return None
    loader = loader_for(chosen, count, train=False, augment=job.augment, device=job.device, workers=0)
    x = next(iter(loader.batches()))[0]
    return x[: max(2, NUMBERS // max(1, x[0].numel()))].clone()
