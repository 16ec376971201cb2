"""Counters for kernels whose last program finishes: zeros, which every launch leaves as it found them.

Launches that may run at the same time need different ones. A graph has a sheet of its own, of which its launches have
a piece each, and launches outside of graphs have one together; both go round their sheet, which is too large for two
launches that run at the same time to meet.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor

SIZE = 1 << 16
ALIGNED = 4  # pieces begin at multiples of 16 bytes: a kernel is compiled anew for pointers that do not


class Counters:
    """A sheet of zeros, handed out piece by piece."""

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
# Sheets of graphs that are being captured, innermost last. Not a ContextVar: a backward pass has a thread of its own,
# and what it launches belongs to the graph, too.
OWN: list[Counters] = []


@contextlib.contextmanager
def own_counters(counters: Counters) -> Iterator[None]:
    """For a graph that is captured inside; they have to live as long as the graph."""
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
            torch.cuda.synchronize(device)  # launches on other streams do not wait for the zeros
    return COMMON[device].take(count)
