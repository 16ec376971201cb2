"""Batches: the protocol of every loader, the loader for data that fit on the device, and the choice between them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from onefold.data.augment import Augmentation, CropFlip, Draws, ResizedCrop, as_input, crop_and_flip, draw
from onefold.data.given import GivenLoader
from onefold.data.order import check_plan, counts_of, generator_for, order_of, own_batches, part_of, steps_in
from onefold.data.split import Arrays, Split, as_split, check_range
from onefold.data.stream import StreamLoader
from onefold.data.view import view_of

AHEAD = ThreadPoolExecutor(1, "onefold-draws")  # its thread begins with the first task


class Loader(Protocol):
    """Batches `(x, y)` of an epoch: inputs `[B, ...]` as floats, labels `[B]`, both on the device."""

    @property
    def examples(self) -> int:
        """How many examples an epoch sees, over all processes."""

    def __len__(self) -> int:
        """Steps an epoch."""

    def counts(self, step: int) -> list[int] | None:
        """How many examples of the global batch of a step each process has, where that is known without asking them."""

    def batches(self, epoch: int = 0, start_step: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches of `epoch` from `start_step` on, the same bits whether or not the earlier ones were asked for."""


class DeviceLoader:
    """Data that live on the device as uint8; order, crop, flip and batch are made there, no image by itself.

    `batch_size` is the global batch: process `rank` of `world_size` takes its contiguous part of it; with
    `whole_batches`, which is for evaluation, every `world_size`-th batch as it is. The order and the draws of an epoch
    come from (seed, epoch) alone and are made once at its start, so step t needs no earlier step and a step itself
    draws nothing.
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
        self.augment = augment if arrays.images else None  # floats and features have nothing to crop
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
                # Copies, also in order: who gets them may write into them.
                yield as_input(self.x[chosen]), self.y[chosen]
                continue
            part = draws.part(first, last)
            if self.x.is_cuda and self.x.dtype == torch.uint8:
                from onefold.fast.crop import cropped  # Triton, which a machine without a GPU may not have

                x = cropped(self.x, chosen, *part, self.augment.pad)
            else:
                x = as_input(crop_and_flip(self.x[chosen], part, self.augment.pad))
            yield x.contiguous(memory_format=self.layout), self.y[chosen]

    def _drawn(self, epoch: int) -> tuple[Tensor, Draws | None]:
        """The order and the draws of an epoch. While a GPU works on it, the host makes those of the next."""
        coming, self.coming = self.coming, None
        found = coming[1].result() if coming is not None and coming[0] == epoch else self._draw(epoch)
        if self.shuffle and self.device.type == "cuda":
            self.coming = epoch + 1, AHEAD.submit(self._draw, epoch + 1)
        return found

    def _draw(self, epoch: int) -> tuple[Tensor, Draws | None]:
        order = order_of(len(self.y), self.seed, epoch, self.shuffle)
        if self.augment is None:
            return order, None
        # For every place in the order, all ranks' too: what an image undergoes does not depend on how many share it.
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
    """The loader that suits a split: on the device where it fits, else streamed by workers.

    For training the order is drawn and `augment` applied; for evaluation the order is the split's and only what
    `augment` does to every image (ImageNet's scaling) remains. Arrays fit if they take at most `device_bytes`; on a
    GPU the default is half of its free memory, and on a CPU they are where they need to be already. `layout` is how
    cropped images lie in memory; others come as they are in the split.
    """
    split, device = as_split(split), torch.device(device)
    if isinstance(split, DataLoader):
        return GivenLoader(split, device, classes)
    if isinstance(split, Arrays) and classes is not None:
        check_range(split.y, range(classes), "example {}".format)
    if device_bytes is None:
        device_bytes = room_on(device, split)
    # Scaling gives images of other sizes than the data have: it is done one by one.
    if isinstance(split, Arrays) and not isinstance(augment, ResizedCrop) and split.nbytes <= device_bytes:
        return DeviceLoader(
            split,
            batch_size,
            augment=augment if train else None,
            shuffle=train,
            seed=seed,
            device=device,
            drop_last=drop_last,
            rank=rank,
            world_size=world_size,
            whole_batches=whole_batches,
            layout=layout,
        )
    return StreamLoader(
        split,
        batch_size,
        view=view_of(augment, train),
        shuffle=train,
        seed=seed,
        device=device,
        drop_last=drop_last,
        workers=workers,
        rank=rank,
        world_size=world_size,
        whole_batches=whole_batches,
        classes=classes,
    )


def room_on(device: torch.device, split: Split) -> float:
    """How many bytes of data a device takes in; what is there already has its room."""
    there = isinstance(split, Arrays) and split.x.device.type == device.type
    if device.type == "cuda" and not there:
        free, _ = torch.cuda.mem_get_info(device)
        return free / 2
    return math.inf
