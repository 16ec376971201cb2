"""Counters for kernels whose last program finishes the work: zeros, which every launch resets to zero.

Launches that may run concurrently need different counters. Each graph has its own buffer, from which each of its
launches gets a piece, and launches outside graphs share one buffer. Both hand out pieces round-robin; the buffer is so
large that concurrent launches never get the same piece.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor

SIZE = 1 << 16
ALIGNED = 4  # pieces start at multiples of 16 bytes: a kernel is recompiled for pointers that do not


class Counters:
    """A buffer of zeros, handed out piece by piece."""

    def __init__(self, device: torch.device, size: int = SIZE) -> None:
        self.zeros = torch.zeros(size, dtype=torch.int32, device=device)
        self.next = 0

    def take(self, count: int) -> Tensor:
        if self.next + count > len(self.zeros):
            self.next = 0
        piece = self.zeros[self.next : self.next + count]
        self.next += -(-count // ALIGNED) * ALIGNED
        return piece


COMMON: dict[torch.device, Counters] = {}
# Buffers of graphs that are being captured, innermost last. Not a ContextVar: a backward pass runs in another thread,
# and its launches belong to the graph, too.
OWN: list[Counters] = []


@contextlib.contextmanager
def own_counters(counters: Counters) -> Iterator[None]:
    """Uses these counters for a graph captured inside; they must live as long as the graph."""
    OWN.append(counters)
    try:
        yield
    finally:
        OWN.pop()


def taken(device: torch.device, count: int) -> Tensor:
    """Counters for a launch."""
    if OWN:
        return OWN[-1].take(count)
    if device not in COMMON:
        COMMON[device] = Counters(device)
        if device.type == "cuda":
            torch.cuda.synchronize(device)  # launches on other streams would not wait for the zeros
    return COMMON[device].take(count)
