"""Batches of data that do not fit in memory: read, decoded and augmented by `DataLoader` workers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from onefold.data.augment import as_input
from onefold.data.examples import Key, Refusal, SeededExamples, collate
from onefold.data.order import check_plan, counts_of, draw_seed, order_of, own_batches, part_of, steps_in
from onefold.data.split import Arrays
from onefold.data.view import View


class StreamLoader:
    """Examples of a map-style `Dataset`, in an order drawn from (seed, epoch); `batch_size` is over all processes.

    Before an example is read, the random numbers of torch, NumPy and Python are seeded from (seed, epoch, index), so
    that its transforms depend neither on which worker reads it nor on how many there are. The workers stay alive
    between epochs, so only one iteration can be active at a time.
    """

    def __init__(
        self,
        dataset: Dataset[Any] | Arrays,
        batch_size: int,
        *,
        view: View | None = None,
        shuffle: bool = False,
        seed: int = 0,
        device: torch.device | str = "cpu",
        drop_last: bool = False,
        workers: int | None = None,
        rank: int = 0,
        world_size: int = 1,
        whole_batches: bool = False,
        classes: int | None = None,
    ) -> None:
        total = len(dataset)  # type: ignore[arg-type]
        check_plan(total, batch_size, drop_last, rank, world_size, whole_batches)
        workers = workers_here() if workers is None else workers
        if workers < 0:
            raise ValueError(f"workers: expected at least 0, got {workers}")
        self.total, self.batch_size, self.drop_last = total, batch_size, drop_last
        self.device = torch.device(device)
        self.keys = Keys(total, batch_size, drop_last, shuffle, seed, rank, world_size, whole_batches)
        self.loader: DataLoader[Any] = DataLoader(
            SeededExamples(dataset, view, classes),
            batch_sampler=self.keys,
            collate_fn=collate,
            num_workers=workers,
            persistent_workers=workers > 0,
            pin_memory=self.device.type == "cuda",
            generator=torch.Generator(),  # the default would advance the run's global generator
        )

    @property
    def examples(self) -> int:
        return min(self.total, len(self) * self.batch_size)

    def __len__(self) -> int:
        return steps_in(self.total, self.batch_size, self.drop_last)

    def counts(self, step: int) -> list[int]:
        return counts_of(step, self.total, self.batch_size, self.keys.world_size)

    def batches(self, epoch: int = 0, start_step: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        self.keys.epoch, self.keys.start_step = epoch, start_step
        for batch in self.loader:
            if isinstance(batch, Refusal):
                raise ValueError(batch.reason)
            x, y = batch
            yield as_input(x.to(self.device, non_blocking=True)), y.to(self.device, non_blocking=True)


@dataclass
class Keys(Sampler[list[Key]]):
    """The keys of this rank's batches. They are made in the main process, so workers need not know the epoch."""

    total: int
    batch_size: int
    drop_last: bool
    shuffle: bool
    seed: int
    rank: int
    world_size: int
    whole_batches: bool = False
    epoch: int = 0
    start_step: int = 0

    def __len__(self) -> int:
        share = own_batches(self.rank, self.world_size, self.whole_batches)
        return len(range(share.start, steps_in(self.total, self.batch_size, self.drop_last), share.every))

    def __iter__(self) -> Iterator[list[Key]]:
        epoch, steps = self.epoch, steps_in(self.total, self.batch_size, self.drop_last)
        order = order_of(self.total, self.seed, epoch, self.shuffle)
        share = own_batches(self.rank, self.world_size, self.whole_batches)
        for step in range(self.start_step + share.start, steps, share.every):
            first, last = part_of(step, self.total, self.batch_size, share.rank, share.parts)
            keys = [Key(index, draw_seed("example", self.seed, epoch, index)) for index in order[first:last].tolist()]
            yield keys or [Key(0, 0, shape_only=True)]


def workers_here() -> int:
    """One worker per core that this process may use, at most 8."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(8, cores)
