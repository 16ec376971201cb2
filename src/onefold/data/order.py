"""Who comes when: every order and every draw is a function of (seed, epoch), never of what ran before."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import torch
from torch import Tensor


def draw_seed(*parts: int | str) -> int:
    """A seed for what `parts` name, e.g. ("order", seed, epoch): 63 bits of their hash, the same everywhere.

    Hashing keeps streams apart that sums would join: seed 1, epoch 2 is not seed 2, epoch 1.
    """
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def generator_for(*parts: int | str) -> torch.Generator:
    """A generator on the host, so that the draws are the same whatever device they are used on."""
    return torch.Generator().manual_seed(draw_seed(*parts))


def order_of(examples: int, seed: int, epoch: int, shuffle: bool) -> Tensor:
    """The indices `[N]` in the order of this epoch."""
    if not shuffle:
        return torch.arange(examples)
    return torch.randperm(examples, generator=generator_for("order", seed, epoch))


def steps_in(examples: int, batch_size: int, drop_last: bool) -> int:
    """How many batches an epoch has."""
    return examples // batch_size if drop_last else -(-examples // batch_size)


def part_of(step: int, examples: int, batch_size: int, rank: int, world_size: int) -> tuple[int, int]:
    """Where the rank's contiguous part of the global batch begins and ends in the epoch's order.

    The parts of all ranks, one after the other, are the batch one process would have had. In a last batch with fewer
    examples than ranks some parts are empty: every rank still makes every step, so that nobody waits for ever.
    """
    first = step * batch_size
    count = min(batch_size, examples - first)
    return first + count * rank // world_size, first + count * (rank + 1) // world_size


class Own(NamedTuple):
    """Every how many batches a rank takes one, from which on, and which part of how many it takes of it."""

    start: int
    every: int
    rank: int
    parts: int


def own_batches(rank: int, world_size: int, whole_batches: bool) -> Own:
    """A rank's part of every batch; or every so many batches whole, which a network then sees as one process would."""
    return Own(rank, world_size, 0, 1) if whole_batches else Own(0, 1, rank, world_size)


def counts_of(step: int, examples: int, batch_size: int, world_size: int) -> list[int]:
    """How many examples of a global batch each rank has."""
    parts = [part_of(step, examples, batch_size, rank, world_size) for rank in range(world_size)]
    return [last - first for first, last in parts]


def check_plan(
    examples: int, batch_size: int, drop_last: bool, rank: int, world_size: int, whole_batches: bool = False
) -> None:
    """Refuses batches that cannot be made."""
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
            "take smaller batches or keep the last partial one"
        )
