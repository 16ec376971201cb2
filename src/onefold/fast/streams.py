"""Runs independent parts of a step concurrently on one GPU, which small kernels alone do not fill."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch

T = TypeVar("T")
# The streams for parts, by GPU, all created at once on first use: torch has a pool of 32 and hands them out in turn, so
# that these are all different.
POOL: dict[int, list[torch.cuda.Stream]] = {}
MANY = 16


@dataclass(frozen=True)
class Room:
    """The range of streams that may be used here. Parts that run concurrently have disjoint ranges: memory freed by one
    is reused by the next part on the same stream, which does not wait for other streams that may still read it."""

    first: int
    end: int


# None: parts run one after another on the current stream.
ROOM: ContextVar[Room | None] = ContextVar("ROOM", default=None)


@contextlib.contextmanager
def side_by_side(enabled: bool = True) -> Iterator[None]:
    """Inside, parts get their own streams. For steps that are captured: the parts become branches of the graph."""
    token = ROOM.set(Room(0, MANY) if enabled else None)
    try:
        yield
    finally:
        ROOM.reset(token)


@contextlib.contextmanager
def given_back() -> Iterator[None]:
    """Returns the streams taken inside on exit; the parts on them must have been waited for."""
    before = ROOM.get()
    try:
        yield
    finally:
        ROOM.set(before)


def stream(number: int) -> torch.cuda.Stream:
    return streams_here()[number]


def streams_here() -> list[torch.cuda.Stream]:
    here = torch.cuda.current_device()
    if here not in POOL:
        POOL[here] = [torch.cuda.Stream() for _ in range(MANY)]
    return POOL[here]


def foremost() -> torch.cuda.Stream:
    """A high-priority stream for the critical chain of a step, which goes first if the GPU has no room for everything.

    Parts can wait, above all the gradients of weights: the next layer's gradient does not depend on them. Streams of
    this priority are distinct from those of parts, and a graph keeps the priority of each kernel.
    """
    return torch.cuda.Stream(priority=-1)


def apart() -> torch.cuda.Stream:
    """A stream that no part of a step uses, for other concurrent work."""
    taken, found = streams_here(), torch.cuda.Stream()
    while found in taken:
        found = torch.cuda.Stream()
    return found


@contextlib.contextmanager
def own_casts() -> Iterator[None]:
    """Inside, autocast shares none of the weights it casts with the code outside.

    Autocast remembers casts, and a cast's memory and its backward belong to the stream it was made on. If code outside
    used a cast of a part, that backward would run beside the rest of the backward pass, and write to memory of the
    part's stream that the rest has yet to read.
    """
    torch.clear_autocast_cache()
    try:
        yield
    finally:
        torch.clear_autocast_cache()


class Part(Generic[T]):
    """A computation in progress; `wait` makes the current stream wait for it and returns the result."""

    def __init__(self, compute: Callable[[], T], number: int | None) -> None:
        self.stream = None if number is None else stream(number)
        if self.stream is None:
            self.result = compute()
            return
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream), own_casts():
            self.result = compute()

    def wait(self) -> T:
        if self.stream is not None:
            torch.cuda.current_stream().wait_stream(self.stream)
        return self.result


def beside(compute: Callable[[], T], room: int = 1) -> Part[T]:
    """Computes on another stream inside `side_by_side`; `room` is how many streams it may take, including that one.

    If fewer are left it takes those, and if none is left it computes on the current stream.
    """
    own = None if torch.compiler.is_compiling() else ROOM.get()  # torch 2.11's compiler cannot trace ContextVars
    if own is None or own.first == own.end:
        return Part(compute, None)
    end = min(own.first + room, own.end)
    ROOM.set(Room(end, own.end))  # parts that start before this one is waited for take other streams

    def inside() -> T:
        token = ROOM.set(Room(own.first + 1, end))
        try:
            return compute()
        finally:
            ROOM.reset(token)

    return Part(inside, own.first)


def together(computations: Sequence[Callable[[], T]], room: int = 1) -> list[T]:
    """All results; inside `side_by_side` each is computed on its own stream, and the last on the current one."""
    if torch.compiler.is_compiling():
        return [compute() for compute in computations]
    with given_back():
        parts = [beside(compute, room) for compute in computations[:-1]]
        last = computations[-1]()
        return [*(part.wait() for part in parts), last]
