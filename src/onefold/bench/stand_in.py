"""The examples of a recipe, or, if these are missing, random ones of the same shapes."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from onefold.data import Arrays, CropFlip, Source, Split, load
from onefold.data.specs import READERS, unknown
from onefold.data.statistics import Statistics
from onefold.engine.from_recipe import SPLIT_SEED
from onefold.recipe import Recipe

BATCHES = 8  # of each split, as a stand-in for files
DISTINCT = 256  # different random images, which are repeated
HALF = Statistics((0.5, 0.5, 0.5), (0.25, 0.25, 0.25))


@dataclass(frozen=True)
class Shape:
    """The sizes of a data set, known without having it."""

    classes: int
    side: int
    train: int
    val: int
    test: int
    files: bool = False  # whether images are read from files one by one, which a stand-in does not do

    @property
    def counts(self) -> dict[str, int]:
        return {"train": self.train, "val": self.val, "test": self.test}


# Splits as the readers make them; for SVHN and ImageNet, which hold out a part of each class, up to a few images.
SHAPES = {
    "cifar10": Shape(10, 32, 45_000, 5_000, 10_000),
    "cifar100": Shape(100, 32, 45_000, 5_000, 10_000),
    "svhn": Shape(10, 32, 65_931, 7_326, 26_032),
    "tiny-imagenet": Shape(200, 64, 90_000, 10_000, 10_000, files=True),
    "imagenet": Shape(1000, 224, 1_268_355, 12_812, 50_000, files=True),
}


@dataclass(frozen=True, eq=False)
class Examples:
    """A source to measure with, and the number of examples that the run itself will have."""

    source: Source
    counts: dict[str, int]
    loading: float = 0.0  # seconds
    note: str = ""


def examples_for(recipe: Recipe, *, synthetic: bool = False) -> Examples:
    """The recipe's data, or a stand-in if they are missing or not wanted. Nothing is downloaded."""
    name = recipe.data.source
    if ":" not in name and name not in READERS:
        raise unknown(name)
    if synthetic and name not in SHAPES:
        raise ValueError(f"--synthetic: expected one of {', '.join(SHAPES)}, whose shapes are known, got {name!r}")
    begin, reason = time.perf_counter(), "--synthetic"
    if not synthetic:
        try:
            source = load(name, recipe.data.root, seed=SPLIT_SEED, skip_unreadable=recipe.data.skip_unreadable)
            counts = {split: size(examples) for split, examples in source.splits.items()}
            return Examples(source, counts, time.perf_counter() - begin)
        except ValueError as error:
            if name not in SHAPES:
                raise
            reason = str(error).partition("; ")[0]
    return stand_in(name, recipe.optim.batch_size, reason)


def size(split: Split) -> int:
    assert hasattr(split, "__len__"), "a source counts its examples"
    return len(split)


def stand_in(name: str, batch: int, reason: str) -> Examples:
    """Random images: as many as in the data set if it would be in memory, fewer if it would be read from files."""
    shape = SHAPES[name]
    held = {split: min(count, BATCHES * batch) if shape.files else count for split, count in shape.counts.items()}
    generator = torch.Generator().manual_seed(0)
    distinct = (DISTINCT, 3, shape.side, shape.side)
    pixels = torch.randint(0, 256, distinct, dtype=torch.uint8, generator=generator)

    def split(count: int) -> Arrays:
        indices = torch.arange(count)
        return Arrays(pixels[indices % DISTINCT], indices % shape.classes)

    source = Source(
        name=name,
        train=split(held["train"]),
        val=split(held["val"]),
        test=split(held["test"]),
        classes=tuple(str(label) for label in range(shape.classes)),
        statistics=HALF,
        image_size=(shape.side, shape.side),
        augment=CropFlip(),
    )
    note = f"random images instead of {name} ({reason})"
    note += "; times do not include reading and decoding its files" if shape.files else ""
    return Examples(source, shape.counts, note=note)
