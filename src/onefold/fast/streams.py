"""Independent parts of a step side by side on one GPU: small kernels do not fill it alone."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Generic, TypeVar

import torch

T = TypeVar("T")
POOL: list[torch.cuda.Stream] = []  # a process has one GPU; its streams are made when they are first asked for
# How many streams are in use around here: a part that splits again takes others. None: one after the other.
DEPTH: ContextVar[int | None] = ContextVar("DEPTH", default=None)


@contextlib.contextmanager
def side_by_side(enabled: bool = True) -> Iterator[None]:
    """Inside, parts get streams of their own. For steps that are captured: a graph then holds them as branches."""
    token = DEPTH.set(0 if enabled else None)
    try:
        yield
    finally:
        DEPTH.reset(token)


def stream(number: int) -> torch.cuda.Stream:
    while len(POOL) <= number:
        POOL.append(torch.cuda.Stream())
    return POOL[number]


class Part(Generic[T]):
    """Something under way; `wait` gives it, once the current stream may read it."""

    def __init__(self, compute: Callable[[], T], number: int | None) -> None:
        self.stream = None if number is None else stream(number)
        if self.stream is None:
            self.result = compute()
            return
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            self.result = compute()

    def wait(self) -> T:
        if self.stream is not None:
            torch.cuda.current_stream().wait_stream(self.stream)
        return self.result


def beside(compute: Callable[[], T], room: int = 1) -> Part[T]:
    """Computes on another stream where that is asked for; `room` is how many streams it may take itself."""
    depth = DEPTH.get()
    if depth is None or torch.compiler.is_compiling():
        return Part(compute, None)
    DEPTH.set(depth + room)  # what comes after it, until it is waited for, takes others

    def inside() -> T:
        token = DEPTH.set(depth + 1)
        try:
            return compute()
        finally:
            DEPTH.reset(token)

    return Part(inside, depth)


def together(computations: Sequence[Callable[[], T]], room: int = 1) -> list[T]:
    """All results, each computed on a stream of its own where that is asked for; the last on the current one."""
    before = DEPTH.get()
    parts = [beside(compute, room) for compute in computations[:-1]]
    last = computations[-1]()
    results = [*(part.wait() for part in parts), last]
    if before is not None:
        DEPTH.set(before)
    return results
