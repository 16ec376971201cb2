"""How long something takes on a device, once it has warmed up."""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections.abc import Callable, Sequence

import torch

Rounds = Callable[[int], None]  # does so many rounds of something


def finished(device: torch.device) -> float:
    """The clock, once the device has done everything it was told."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def other_work() -> str | None:
    """A sentence where the machine has more to do than it has cores, before anything is measured on it."""
    load, cores = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0, os.cpu_count() or 1
    if load < cores:
        return None
    return f"the machine has other work (load {load:.1f}, {cores} cores): times will be longer than they are alone"


def cleared(device: torch.device) -> None:
    """What came before is given back and forgotten, compiled graphs too, as in a program that has just begun.

    But for torch's compiler, which takes seconds to load: here, and not in the middle of whatever is measured first.
    """
    torch._dynamo.reset()
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def block_seconds(rounds: Rounds, count: int, device: torch.device) -> float:
    """Seconds of `count` rounds; on a GPU between two events."""
    if device.type != "cuda":
        begin = time.perf_counter()
        rounds(count)
        return time.perf_counter() - begin
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    rounds(count)
    torch.cuda.synchronize(device)  # rounds of several runs have streams of their own, which an event does not see
    last.record()
    torch.cuda.synchronize(device)
    return float(first.elapsed_time(last)) / 1e3


def round_seconds(
    rounds: Rounds,
    device: torch.device,
    *,
    count: int,
    warm: int,
    blocks: int,
    of: Callable[[list[float]], float] = statistics.median,
) -> float:
    """Seconds a round, after `warm` of them: the median over blocks of `count` rounds, or what else `of` them."""
    rounds(warm)
    finished(device)
    return of([block_seconds(rounds, count, device) / count for _ in range(blocks)])


def in_turn(rivals: Sequence[tuple[Rounds, int]], device: torch.device, blocks: int) -> list[float]:
    """Seconds a round of each rival, a block of one after a block of the other: all see the same neighbours.

    A round before every block, which is not counted, finds the memory as the other left it.
    """
    taken: list[list[float]] = [[] for _ in rivals]
    for _ in range(blocks):
        for (rounds, count), own in zip(rivals, taken, strict=True):
            rounds(1)
            finished(device)
            own.append(block_seconds(rounds, count, device) / count)
    return [statistics.median(own) for own in taken]


def repeated(action: Callable[[], object]) -> Rounds:
    def rounds(count: int) -> None:
        for _ in range(count):
            action()

    return rounds
