"""Reads one example of a `Dataset` with seeded random numbers, transforms and checks it; collates them to batches."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from onefold.data.pictures import Unreadable
from onefold.data.split import COLLATE, Arrays
from onefold.data.view import View, as_tensor


class Key(NamedTuple):
    """A request to a worker: an example, the seed of its random numbers, and whether only its shape is needed."""

    example: int
    seed: int
    shape_only: bool = False


@dataclass(frozen=True)
class Refusal:
    """An error found by a worker, returned as a value: raised there, it would arrive wrapped in a traceback."""

    reason: str


class SeededExamples(Dataset[Any]):
    """Examples by `Key`, transformed and checked."""

    def __init__(self, dataset: Dataset[Any] | Arrays, view: View | None, classes: int | None) -> None:
        self.dataset, self.view, self.classes = dataset, view, classes

    def __getitem__(self, key: Key) -> tuple[Tensor, int, bool] | Refusal:
        with seeded(key.seed):
            try:
                example = self.dataset[key.example]
            except Unreadable as error:
                return Refusal(str(error))
            if not isinstance(example, tuple | list) or len(example) != 2:
                got = f"{type(example).__name__}; {COLLATE}"
                return Refusal(f"{self.where(key.example)}: expected (image, label), got {got}")
            image, label = example[0], class_index(example[1])
            if label is None:
                return Refusal(f"{self.where(key.example)}: expected a class index as label, got {example[1]!r}")
            if self.classes is not None and not 0 <= label < self.classes:
                return Refusal(
                    f"{self.where(key.example)}: expected classes 0 to {self.classes - 1}, got label {label}"
                )
            if self.view is not None:
                image = self.view(image)
        tensor = as_tensor(image)
        if tensor is None:
            kind = type(image).__name__
            return Refusal(f"{self.where(key.example)}: expected a tensor, an array or a PIL image, got {kind}")
        return tensor, label, not key.shape_only

    def where(self, index: int) -> str:
        where = getattr(self.dataset, "where", None)
        return str(where(index)) if callable(where) else f"example {index}"


def first_dtype(dataset: Dataset[Any] | Arrays) -> torch.dtype | None:
    """The dtype of the first example; None if there is none or it cannot be used."""
    if not len(dataset):  # type: ignore[arg-type]
        return None
    first = SeededExamples(dataset, None, None)[Key(0, 0)]
    return None if isinstance(first, Refusal) else first[0].dtype


def class_index(label: object) -> int | None:
    """A label as an integer, if it is one."""
    if isinstance(label, Tensor | np.ndarray | np.generic) and torch.as_tensor(label).numel() == 1:
        label = label.item()
    return label if isinstance(label, int) else None


def collate(examples: list[tuple[Tensor, int, bool] | Refusal]) -> tuple[Tensor, Tensor] | Refusal:
    """Collates examples into a batch `[B, ...]`, `[B]`."""
    images, labels = [], []
    wanted = True
    for example in examples:
        if isinstance(example, Refusal):
            return example
        images.append(example[0])
        labels.append(example[1])
        wanted = example[2]
    if len({image.shape for image in images}) > 1:
        shapes = ", ".join(sorted({str(list(image.shape)) for image in images}))
        return Refusal(f"images of a batch: expected one shape, got {shapes}; scale them in the Dataset's transform")
    x, y = torch.stack(images), torch.tensor(labels)
    return (x, y) if wanted else (x[:0], y[:0])


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seeds the global random numbers inside, and restores them after: without workers this is the main process."""
    before = torch.default_generator.get_state(), random.getstate(), np.random.get_state()  # noqa: NPY002
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 -- transforms in the wild still draw from the global state
    try:
        yield
    finally:
        torch.default_generator.set_state(before[0])
        random.setstate(before[1])
        np.random.set_state(before[2])  # noqa: NPY002
