"""Wraps a user's own `DataLoader` in the interface of our loaders."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from onefold.data.augment import as_input
from onefold.data.order import draw_seed
from onefold.data.split import COLLATE, check_range
from onefold.types import readable


class GivenLoader:
    """Iterates the user's loader as it is: its samplers, its batches, its transforms.

    With a `seed`, what they draw with torch depends on seed, rank and epoch alone, so that a run that is resumed sees
    the examples that it would have seen; what they draw in other ways cannot be repeated. `start_step` reads and
    discards the earlier batches. With several processes, each iterates the loader it was given (with a
    `DistributedSampler`, for example).
    """

    def __init__(
        self,
        loader: DataLoader[Any],
        device: torch.device | str = "cpu",
        classes: int | None = None,
        seed: int | None = None,
        rank: int = 0,
    ) -> None:
        self.loader, self.device, self.classes = loader, torch.device(device), classes
        self.seed, self.rank = seed, rank

    @property
    def examples(self) -> int:
        return examples_of(self.loader)

    def __len__(self) -> int:
        return steps_of(self.loader)

    def counts(self, step: int) -> None:
        """None: the sizes are known only after iterating the loader."""

    def batches(self, epoch: int = 0, start_step: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        for sampler in samplers_of(self.loader):
            set_epoch = getattr(sampler, "set_epoch", None)
            if callable(set_epoch):  # a DistributedSampler draws a new order only when told the epoch
                set_epoch(epoch)
        own = None if self.seed is None else draw_seed("loader", self.seed, self.rank, epoch)
        batches: Iterable[Any] = self.loader if own is None else seeded(self.loader, own)
        for step, batch in enumerate(islice(batches, start_step, None), start_step):
            if not isinstance(batch, tuple | list) or len(batch) != 2 or not all(isinstance(b, Tensor) for b in batch):
                raise ValueError(
                    f"DataLoader: expected batches (x, y) of two tensors, got {kind(batch)} at step {step}; {COLLATE}"
                )
            x, y = batch
            if y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
                raise ValueError(f"DataLoader: expected integer class indices as labels, got {y.dtype} at step {step}")
            if self.classes is not None and readable(y):
                check_range(y, range(self.classes), partial("example {1} of batch {0}".format, step))
            yield as_input(x.to(self.device, non_blocking=True)), y.to(self.device, torch.long, non_blocking=True)


def samplers_of(loader: DataLoader[Any]) -> list[Any]:
    return [loader.sampler, loader.batch_sampler, getattr(loader.batch_sampler, "sampler", None)]


def seeded(loader: DataLoader[Any], seed: int) -> Iterator[Any]:
    """The loader's batches, drawn with generators of this seed; torch's global one is put back after each batch."""

    def begun() -> Iterator[Any]:
        torch.default_generator.manual_seed(seed)
        for each in (loader, *samplers_of(loader)):
            generator = getattr(each, "generator", None)
            if isinstance(generator, torch.Generator):
                generator.manual_seed(seed)
        yield from loader

    batches, own = begun(), torch.get_rng_state()
    while True:
        outside = torch.get_rng_state()
        torch.set_rng_state(own)
        try:
            batch = next(batches)
        except StopIteration:
            return
        finally:
            own = torch.get_rng_state()
            torch.set_rng_state(outside)
        yield batch


def steps_of(loader: DataLoader[Any]) -> int:
    """The number of batches in an epoch, which only training has to know."""
    try:
        return len(loader)
    except TypeError:
        raise ValueError(
            "DataLoader: expected one with a length, got one without; "
            "give its dataset a __len__, so that the schedule knows how long an epoch is"
        ) from None


def batching(loader: DataLoader[Any]) -> tuple[int, int, bool]:
    """The number of examples, the batch size, and whether a partial batch is dropped; zeros if unknown."""
    batches = loader.batch_sampler
    if type(batches) is not BatchSampler or isinstance(loader.dataset, IterableDataset):
        return 0, 0, False  # custom batching
    sampler = batches.sampler  # which may draw only part of the data set, or some of it twice
    return (len(sampler), batches.batch_size, batches.drop_last) if isinstance(sampler, Sized) else (0, 0, False)


def examples_of(loader: DataLoader[Any]) -> int:
    """The number of examples in an epoch; that of the data set if the loader does not tell."""
    count, size, _ = batching(loader)
    if size:
        return min(count, len(loader) * size)
    if not hasattr(loader.dataset, "__len__"):
        raise ValueError(
            f"DataLoader: expected a dataset with a length, got {type(loader.dataset).__name__} without; give it a "
            "__len__, so that the examples of an epoch can be counted"
        )
    held = len(loader.dataset)
    return held if loader.batch_size is None else min(held, len(loader) * loader.batch_size)


def kind(batch: object) -> str:
    """The types that a batch consists of, in words."""
    if isinstance(batch, tuple | list):
        return f"{type(batch).__name__} of {', '.join(type(part).__name__ for part in batch)}"
    return type(batch).__name__
