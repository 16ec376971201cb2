"""The order of examples: every order and every draw depends only on (seed, epoch), never on what ran before."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import torch
from torch import Tensor


def draw_seed(*parts: int | str) -> int:
    """A seed for the purpose named by `parts`, e.g. ("order", seed, epoch): 63 bits of their hash, on any machine.

    Hashing keeps streams distinct that sums would merge: seed 1, epoch 2 is not seed 2, epoch 1.
    """
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def generator_for(*parts: int | str) -> torch.Generator:
    """A generator on the CPU, so that the draws are the same whatever device they are used on."""
    return torch.Generator().manual_seed(draw_seed(*parts))


def order_of(examples: int, seed: int, epoch: int, shuffle: bool) -> Tensor:
    """The indices `[N]` in the order of this epoch."""
    if not shuffle:
        return torch.arange(examples)
    return torch.randperm(examples, generator=generator_for("order", seed, epoch))


def steps_in(examples: int, batch_size: int, drop_last: bool) -> int:
    """The number of batches in an epoch."""
    return examples // batch_size if drop_last else -(-examples // batch_size)


def part_of(step: int, examples: int, batch_size: int, rank: int, world_size: int) -> tuple[int, int]:
    """Start and end, in the epoch's order, of the rank's contiguous part of the global batch.

    The parts of all ranks together are the batch that a single process would have. In a last batch with fewer examples
    than ranks, some parts are empty: every rank still takes every step, so that the others do not wait forever.
    """
    first = step * batch_size
    count = min(batch_size, examples - first)
    return first + count * rank // world_size, first + count * (rank + 1) // world_size


class Own(NamedTuple):
    """A rank takes every `every`-th batch from `start` on, and of each batch part number `rank` out of `parts`."""

    start: int
    every: int
    rank: int
    parts: int


def own_batches(rank: int, world_size: int, whole_batches: bool) -> Own:
    """A rank's part of every batch; or some whole batches, which are then the same as in a single process."""
    return Own(rank, world_size, 0, 1) if whole_batches else Own(0, 1, rank, world_size)


def counts_of(step: int, examples: int, batch_size: int, world_size: int) -> list[int]:
    """How many examples of a global batch each rank has."""
    parts = [part_of(step, examples, batch_size, rank, world_size) for rank in range(world_size)]
    return [last - first for first, last in parts]


def check_plan(
    examples: int, batch_size: int, drop_last: bool, rank: int, world_size: int, whole_batches: bool = False
) -> None:
    """Refuses settings for which batches cannot be made."""
    if batch_size < 1:
        raise ValueError(f"batch_size: expected at least 1, got {batch_size}")
    if world_size < 1 or not 0 <= rank < world_size:
        raise ValueError(f"rank: expected 0 to world_size - 1, got rank {rank} of world_size {world_size}")
    if batch_size % world_size and not whole_batches:
        raise ValueError(
            f"batch_size: expected a multiple of the {world_size} processes, got {batch_size}; it is the global batch"
        )
    if drop_last and examples < batch_size:
        raise ValueError(
            f"batch_size: expected at most the {examples} examples there are, got {batch_size}; "
            "use smaller batches, or keep the last, partial one"
        )
