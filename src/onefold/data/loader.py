"""The protocol of all loaders, the loader for data that fit on the device, and the choice of a loader."""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from onefold.data.augment import Augmentation, CropFlip, Draws, ResizedCrop, as_input, crop_and_flip, draw
from onefold.data.given import GivenLoader
from onefold.data.order import check_plan, counts_of, generator_for, order_of, own_batches, part_of, steps_in
from onefold.data.split import Arrays, Split, as_split, check_range
from onefold.data.stream import StreamLoader
from onefold.data.view import view_of

AHEAD = ThreadPoolExecutor(1, "onefold-draws")  # its thread starts with the first task


class Loader(Protocol):
    """Batches `(x, y)` of an epoch: inputs `[B, ...]` as floats, labels `[B]`, both on the device."""

    @property
    def examples(self) -> int:
        """Examples per epoch, over all processes."""

    def __len__(self) -> int:
        """Steps per epoch."""

    def counts(self, step: int) -> list[int] | None:
        """How many examples of a step's global batch each process has, if that is known without communication."""

    def batches(self, epoch: int = 0, start_step: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches of `epoch` from `start_step` on, bit for bit the same as if the earlier ones had been read."""


class DeviceLoader:
    """Keeps the data on the device as uint8, and shuffles, crops, flips and batches there, whole batches at a time.

    `batch_size` is that of the global batch: process `rank` of `world_size` takes a contiguous part of it, or, with
    `whole_batches` (for evaluation), every `world_size`-th whole batch. The order and the augmentation of an epoch
    depend only on (seed, epoch) and are drawn at its start, so any step can be reproduced without the earlier ones.
    """

    def __init__(
        self,
        arrays: Arrays,
        batch_size: int,
        *,
        augment: CropFlip | None = None,
        shuffle: bool = False,
        seed: int = 0,
        device: torch.device | str = "cpu",
        drop_last: bool = False,
        rank: int = 0,
        world_size: int = 1,
        whole_batches: bool = False,
        layout: torch.memory_format = torch.contiguous_format,
    ) -> None:
        check_plan(len(arrays), batch_size, drop_last, rank, world_size, whole_batches)
        self.device = torch.device(device)
        self.x, self.y = arrays.x.to(self.device), arrays.y.to(self.device)
        self.augment = augment if arrays.images else None  # floats and features are never cropped
        self.batch_size, self.drop_last, self.layout = batch_size, drop_last, layout
        self.shuffle, self.seed = shuffle, seed
        self.rank, self.world_size, self.whole_batches = rank, world_size, whole_batches
        self.coming: tuple[int, Future[tuple[Tensor, Draws | None]]] | None = None

    @property
    def examples(self) -> int:
        return min(len(self.y), len(self) * self.batch_size)

    def __len__(self) -> int:
        return steps_in(len(self.y), self.batch_size, self.drop_last)

    def counts(self, step: int) -> list[int]:
        return counts_of(step, len(self.y), self.batch_size, self.world_size)

    def batches(self, epoch: int = 0, start_step: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        order, draws = self._drawn(epoch)
        order, draws = order.to(self.device), None if draws is None else draws.to(self.device)
        share = own_batches(self.rank, self.world_size, self.whole_batches)
        for step in range(start_step + share.start, len(self), share.every):
            first, last = part_of(step, len(self.y), self.batch_size, share.rank, share.parts)
            chosen = order[first:last]
            if draws is None or self.augment is None:
                # Indexing copies, even in order, so the caller may modify the batch.
                yield as_input(self.x[chosen]), self.y[chosen]
                continue
            part = draws.part(first, last)
            if self.x.is_cuda and self.x.dtype == torch.uint8:
                from onefold.fast.crop import cropped  # needs Triton, which machines without a GPU may lack

                x = cropped(self.x, chosen, *part, self.augment.pad)
            else:
                x = as_input(crop_and_flip(self.x[chosen], part, self.augment.pad))
            yield x.contiguous(memory_format=self.layout), self.y[chosen]

    def _drawn(self, epoch: int) -> tuple[Tensor, Draws | None]:
        """The order and the augmentation of an epoch. While a GPU works on it, a thread draws those of the next."""
        coming, self.coming = self.coming, None
        found = coming[1].result() if coming is not None and coming[0] == epoch else self._draw(epoch)
        if self.shuffle and self.device.type == "cuda":
            self.coming = epoch + 1, AHEAD.submit(self._draw, epoch + 1)
        return found

    def _draw(self, epoch: int) -> tuple[Tensor, Draws | None]:
        order = order_of(len(self.y), self.seed, epoch, self.shuffle)
        if self.augment is None:
            return order, None
        # Drawn for the whole epoch on every rank, so that augmentation does not depend on the number of processes.
        return order, draw(len(self.y), self.augment, generator_for("augment", self.seed, epoch))


def loader_for(
    split: Split,
    batch_size: int,
    *,
    train: bool,
    augment: Augmentation | None = None,
    seed: int = 0,
    device: torch.device | str = "cpu",
    drop_last: bool = False,
    workers: int | None = None,
    rank: int = 0,
    world_size: int = 1,
    whole_batches: bool = False,
    classes: int | None = None,
    device_bytes: float | None = None,
    layout: torch.memory_format = torch.contiguous_format,
) -> Loader:
    """The right loader for a split: on the device if it fits there, else streamed by workers.

    For training, the order is random and `augment` is applied; for evaluation, the order is that of the split, and only
    the deterministic part of `augment` (ImageNet's scaling) remains. Arrays fit if they take at most `device_bytes`; by
    default half of a GPU's free memory, and no limit on a CPU. `layout` is the memory format of cropped images; others
    keep that of the split.
    """
    split, device = as_split(split), torch.device(device)
    if isinstance(split, DataLoader):
        return GivenLoader(split, device, classes, seed if train else None, rank)
    if isinstance(split, Arrays) and classes is not None:
        check_range(split.y, range(classes), "example {}".format)
    if device_bytes is None:
        device_bytes = room_on(device, split)
    plan: dict[str, Any] = {"shuffle": train, "seed": seed, "device": device, "drop_last": drop_last}
    plan |= {"rank": rank, "world_size": world_size, "whole_batches": whole_batches}
    # A ResizedCrop changes the size of images, so it is applied one image at a time, by the streaming loader.
    if isinstance(split, Arrays) and not isinstance(augment, ResizedCrop) and split.nbytes <= device_bytes:
        return DeviceLoader(split, batch_size, augment=augment if train else None, layout=layout, **plan)
    return StreamLoader(split, batch_size, view=view_of(augment, train), workers=workers, classes=classes, **plan)


def room_on(device: torch.device, split: Split) -> float:
    """How many bytes of data fit on a device; no limit for data that are already there."""
    there = isinstance(split, Arrays) and split.x.device.type == device.type
    if device.type == "cuda" and not there:
        free, _ = torch.cuda.mem_get_info(device)
        return free / 2
    return math.inf
