"""Independent parts of a step side by side on one GPU: small kernels do not fill it alone."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch

T = TypeVar("T")
# Of each GPU. Its parts' streams are made all at once, when one is first asked for: torch has 32 and hands them out in
# turn, so that these are different ones.
POOL: dict[int, list[torch.cuda.Stream]] = {}
MANY = 16


@dataclass(frozen=True)
class Room:
    """Numbers of the streams that may be taken here. Two parts that run at the same time have none in common: what one
    of them frees, the next part on the same stream writes to, and does not wait for those who still read it."""

    first: int
    end: int


# None: one after the other, on the current stream.
ROOM: ContextVar[Room | None] = ContextVar("ROOM", default=None)


@contextlib.contextmanager
def side_by_side(enabled: bool = True) -> Iterator[None]:
    """Inside, parts get streams of their own. For steps that are captured: a graph then holds them as branches."""
    token = ROOM.set(Room(0, MANY) if enabled else None)
    try:
        yield
    finally:
        ROOM.reset(token)


@contextlib.contextmanager
def given_back() -> Iterator[None]:
    """Streams that parts have taken inside, and that were waited for, may be taken again afterwards."""
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
    """A stream that goes first where the GPU has not room for all: what a step's parts wait for, and wait behind.

    Parts are what has time, gradients of weights above all: the next layer's gradient does not wait for them. Streams
    of this priority are others than those of parts, and a graph remembers what each of its kernels had.
    """
    return torch.cuda.Stream(priority=-1)


def apart() -> torch.cuda.Stream:
    """A stream that no part of a step has, for whatever runs beside it."""
    taken, found = streams_here(), torch.cuda.Stream()
    while found in taken:
        found = torch.cuda.Stream()
    return found


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
    """Computes on another stream where that is asked for; `room` is how many streams it may take, that one included.

    Where fewer are left it takes those, and where none is left it computes on the current stream.
    """
    own = None if torch.compiler.is_compiling() else ROOM.get()  # which the compiler of torch 2.11 cannot read
    if own is None or own.first == own.end:
        return Part(compute, None)
    end = min(own.first + room, own.end)
    ROOM.set(Room(end, own.end))  # what comes after it, until it is waited for, takes others

    def inside() -> T:
        token = ROOM.set(Room(own.first + 1, end))
        try:
            return compute()
        finally:
            ROOM.reset(token)

    return Part(inside, own.first)


def together(computations: Sequence[Callable[[], T]], room: int = 1) -> list[T]:
    """All results, each computed on a stream of its own where that is asked for; the last on the current one."""
    if torch.compiler.is_compiling():
        return [compute() for compute in computations]
    with given_back():
        parts = [beside(compute, room) for compute in computations[:-1]]
        last = computations[-1]()
        return [*(part.wait() for part in parts), last]
