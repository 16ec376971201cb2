"""The data that finished networks are measured on: the run's own, and other images made to fit."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from onefold.data import Augmentation, Loader, Source, Split, load, loader_for
from onefold.data.options import Progress
from onefold.data.place import found_again
from onefold.data.preprocessing import of_name, of_source
from onefold.data.sample import sample
from onefold.engine.from_recipe import SPLIT_SEED
from onefold.engine.measure.subject import Subject
from onefold.recipe import DataRecipe

NUMBERS = 1 << 22  # elements in a batch
LUMA = (0.299, 0.587, 0.114)


@dataclass(frozen=True)
class DataOptions:
    """Where to find data; None means as in the run's recipe."""

    root: str | None = None
    download: bool = False
    skip_unreadable: bool = False
    workers: int | None = None

    def root_of(self, data: DataRecipe) -> str:
        return data.root if self.root is None else self.root

    def skips(self, data: DataRecipe) -> bool:
        return data.skip_unreadable or self.skip_unreadable


@dataclass(eq=False)
class RunData:
    """The splits of a data set, loaded on first use; `subject` is any of the subjects that share it."""

    subject: Subject
    options: DataOptions
    progress: Progress | None = None
    source: Source | None = None

    @property
    def root(self) -> str:
        return self.options.root_of(self.subject.recipe.data)

    @property
    def workers(self) -> int | None:
        return self.subject.recipe.data.workers if self.options.workers is None else self.options.workers

    def read(self) -> Source:
        if self.source is None:
            self.source = source_of(self.subject.recipe.data, self.subject.about, self.options, self.progress)
        return self.source

    def preprocessing(self) -> dict[str, Any]:
        return preprocessing_of(self.subject.about, self.read)

    def loader(self, split: Split, train: bool = False) -> Loader:
        """Batches as in evaluation, in the split's order; or with `train` as in training, shuffled and augmented."""
        size = batch_size(self.subject)
        augment: Augmentation | None = self.read().augment
        place: dict[str, Any] = {"device": self.subject.device, "workers": self.workers}
        return loader_for(split, size, train=train, augment=augment, classes=self.subject.classes, **place)

    def test(self) -> Loader:
        return self.loader(self.read().test)

    def sampled(self, name: str, count: int, train: bool = False) -> Loader:
        """A random sample of a split, the same every time; with `train`, augmented as in training."""
        chosen = sample(self.read().splits[name], count)
        assert chosen is not None, "sources are no loaders"
        return self.loader(chosen, train)


def source_of(
    data: DataRecipe, about: dict[str, Any], options: DataOptions, progress: Progress | None = None
) -> Source:
    """The data of a finished run."""
    given: dict[str, Any] = {"seed": SPLIT_SEED, "skip_unreadable": options.skips(data), "download": options.download}
    spec = found_again(data.source, about.get("data_place"))
    source = load(spec, options.root_of(data), progress=progress, **given)
    if list(source.classes) != about["class_names"] or list(source.image_size) != about["image_size"]:
        raise ValueError(
            f"the run was trained on {data.source} with {len(about['class_names'])} classes, but the data "
            f"found now have {len(source.classes)}, or other names or sizes; point --data.root to the run's data"
        )
    return source


def preprocessing_of(about: dict[str, Any], read: Callable[[], Source]) -> dict[str, Any]:
    """How a run's test images are preprocessed. Older runs do not record it: for them it is found out from the name of
    the data, or else from the data."""
    if "preprocessing" in about:
        return dict(about["preprocessing"])
    if len(about["image_size"]) != 2:
        return {}
    known = of_name(about["data"], len(about["statistics"][0]), about["image_size"])
    return of_source(read()) if known is None else known


def batch_size(subject: Subject) -> int:
    return max(1, min(500, NUMBERS // max(1, subject.channels * math.prod(subject.image_size))))


def fitted(x: Tensor, subject: Subject) -> Tensor:
    """Images in [0, 1] converted to the network's size and channels; features unchanged."""
    if not subject.images:
        if list(x.shape[1:]) != list(subject.image_size):
            raise ValueError(f"ood: expected {list(subject.image_size)} features, got {list(x.shape[1:])}")
        return x
    if tuple(x.shape[2:]) != subject.image_size:
        # Antialiased: without it, downscaling a large image would skip pixels.
        x = F.interpolate(x, subject.image_size, mode="bilinear", antialias=True, align_corners=False).clamp(0, 1)
    if x.shape[1] == subject.channels:
        return x
    if x.shape[1] == 1:
        return x.expand(-1, subject.channels, -1, -1)
    if subject.channels == 1 and x.shape[1] == 3:
        return torch.einsum("bchw,c->bhw", x, torch.tensor(LUMA, device=x.device))[:, None]
    raise ValueError(f"ood: expected images of {subject.channels} channels, 1 or 3, got {x.shape[1]}")
