"""Log records of the members' diversity during training, and of how the perturbation changes it."""

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
from onefold.methods import AnyStudent
from onefold.metrics import diversity
from onefold.perturb import DRAWS, none
from onefold.types import Ensemble, Perturbation

if TYPE_CHECKING:
    from onefold.engine.training import Job

FEWEST, MOST = 64, 256  # images of each split
NUMBERS = 1 << 23  # elements in the stored images at most: of large images there are fewer
SHARE = 0.01  # of the examples a run trains on: measuring an image costs about as much as training on it
LOOKS = 100  # measurements in a run: a curve needs no more points


@dataclass(eq=False)
class DiversityLog:
    """Measures diversity on the same images of train, val and test every few epochs, with its own random numbers.

    Training and model selection do not depend on the results. It uses the images of the test split, but no labels.
    """

    job: Job
    student: AnyStudent
    perturb: Perturbation | None
    count: int  # images of each split
    every: int
    images: dict[str, Tensor] | None = None  # by split, loaded on first use
    tdiv: float | None = None  # TDiv of the unperturbed images

    def due(self, epoch: int) -> bool:
        return epoch % self.every == 0

    def records(self, step: int, epoch: int) -> list[dict[str, Any]]:
        """Div of the members on every split, and how much the perturbation changes TDiv and SDiv on train.

        Both are over all pairs of members, which is what a pair drawn by the perturbation gives on average. All
        processes must call this together; the random state of training is restored afterwards.
        """
        job = self.job
        job.world.rest()
        with own_randomness(job.device):
            torch.manual_seed(draw_seed("diversity", job.settings.seed, step))
            if self.images is None:
                self.images = {name: x for name, x in self.read().items() if x is not None}
            train = self.images.get("train")
            found: list[dict[str, Any]] = []
            at: dict[str, Any] = {"step": step, "epoch": epoch}
            sdiv = self.mean(self.student.at_rest, train)
            if self.student.members > 1 and self.images:
                held_out = {
                    f"{split}_div": self.mean(self.student.at_rest, self.images[split])
                    for split in ("val", "test")
                    if split in self.images
                }
                found.append({"kind": "diversity"} | at | {"train_div": sdiv} | held_out)
            if self.perturb is not None and train is not None:
                about = {"kind": "perturbation"} | at | {"name": job.perturbation.name}
                found.append(about | self.changes(train, sdiv))
        return found

    def read(self) -> dict[str, Tensor | None]:
        seed = draw_seed("diversity", self.job.settings.seed)
        splits = {"train": self.job.train, "val": self.job.val, "test": self.job.test}
        return {name: None if of is None else images_of(of, self.job, self.count, seed) for name, of in splits.items()}

    def pieces(self, x: Tensor) -> Sequence[Tensor]:
        """Pieces no larger than a training step's, so that they fit into memory."""
        optim = self.job.settings.optim
        pieces: Sequence[Tensor] = x.split(max(1, optim.batch_size // optim.accumulate))
        return pieces

    @torch.no_grad()
    def mean(self, ensemble: Ensemble | None, x: Tensor | None) -> float | None:
        """Mean Div of an ensemble; None if it has fewer than two members or there are no images."""
        if ensemble is None or ensemble.members < 2 or x is None:
            return None
        return float(torch.cat([diversity(ensemble(part)) for part in self.pieces(x)]).mean())

    def changes(self, x: Tensor, sdiv: float | None) -> dict[str, float | None]:
        """Means over the images: TDiv and SDiv, and how much perturbing the images changes them."""
        assert self.perturb is not None
        teachers, student = self.job.teachers, self.student
        moved = torch.cat([self.perturb(part, teachers, student).detach() for part in self.pieces(x)])
        if self.tdiv is None:
            self.tdiv = self.mean(teachers, x)  # neither the images nor the teachers change
        after = self.mean(teachers, moved), self.mean(student.at_rest, moved)
        tdiv_change, sdiv_change = (
            None if then is None or now is None else now - then
            for then, now in zip((self.tdiv, sdiv), after, strict=True)
        )
        before = {"tdiv_before": self.tdiv, "sdiv_before": sdiv}
        return before | {"tdiv_change": tdiv_change, "sdiv_change": sdiv_change}


def diversity_log(job: Job, student: AnyStudent, examples: int) -> DiversityLog | None:
    """The diversity log of a training run; None if there is nothing to compare, or if it is turned off."""
    s, teachers = job.settings, 1 if job.teachers is None else job.teachers.members
    perturbs = job.perturbation.perturb is not none and max(teachers, student.members) > 1
    if s.diversity_every == 0 or not (perturbs or student.members > 1):
        return None
    perturb = job.perturb(DRAWS) if perturbs else None
    return DiversityLog(job, student, perturb, *how_often(s.diversity_every, s.epochs, examples))


def how_often(every: int | None, epochs: int, examples: int) -> tuple[int, int]:
    """The number of images of each split, and of epochs between measurements.

    By default, so few that they cost at most 1% of the examples trained on, and at most a hundred measurements.
    """
    count = min(MOST, max(FEWEST, int(SHARE * examples)))
    seldom = max(math.ceil(count / (SHARE * examples)), math.ceil(epochs / LOOKS))
    return count, seldom if every is None else every


@torch.no_grad()
def images_of(split: Split, job: Job, count: int, seed: int) -> Tensor | None:
    """The same images every time, as evaluation sees them; None for a user's DataLoader, which cannot be sampled."""
    chosen = sample(split, count, seed)
    if chosen is None:
        return None
    loader = loader_for(chosen, count, train=False, augment=job.augment, device=job.device, workers=0)
    x = next(iter(loader.batches()))[0]
    return x[: max(2, NUMBERS // max(1, x[0].numel()))].clone()
