"""Measures how long something takes on a device, after a warm-up."""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections.abc import Callable, Sequence

import torch

Rounds = Callable[[int], None]  # does the given number of rounds of something


def finished(device: torch.device) -> float:
    """Waits until the device has finished all its work, and returns the time."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def other_work() -> str | None:
    """A warning, before anything is measured, if the machine's load is already as large as its number of cores."""
    load, cores = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0, os.cpu_count() or 1
    if load < cores:
        return None
    return f"the machine is busy (load {load:.1f}, {cores} cores): times will be longer than on an idle machine"


def cleared(device: torch.device) -> None:
    """Frees memory and compiled graphs of what ran before, to measure as in a program that has just started.

    This also imports torch's compiler, which takes seconds, so that it does not happen during the first measurement.
    """
    torch._dynamo.reset()
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def block_seconds(rounds: Rounds, count: int, device: torch.device) -> float:
    """Seconds for `count` rounds; on a GPU, between two events."""
    if device.type != "cuda":
        begin = time.perf_counter()
        rounds(count)
        return time.perf_counter() - begin
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    rounds(count)
    torch.cuda.synchronize(device)  # several runs use streams of their own, which an event does not wait for
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
    """Seconds per round, after `warm` warm-up rounds: the median (or `of`) over blocks of `count` rounds."""
    rounds(warm)
    finished(device)
    return of([block_seconds(rounds, count, device) / count for _ in range(blocks)])


def in_turn(rivals: Sequence[tuple[Rounds, int]], device: torch.device, blocks: int) -> list[float]:
    """Seconds per round of each rival, in alternating blocks, so that other load on the machine affects all equally.

    Each block is preceded by an uncounted round, because the caches and memory are as the other rival left them.
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
