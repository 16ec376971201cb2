"""Several runs on one device at once: what one of them leaves idle, another one uses."""

from __future__ import annotations

import contextlib
import signal
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, TypeVar

import torch

from onefold.engine.device import current
from onefold.engine.keeping.pack import generator_states, set_generator_states
from onefold.engine.progress import Progress
from onefold.engine.signals import Interrupted, asked_to_stop
from onefold.fast.streams import apart

Value = TypeVar("Value")
# Yields after every step, and returns what came out; yields True where it is about to wait for the device.
Going = Generator[bool | None, None, Value]
AHEAD = 32  # turns of the others that the device is given before one of the runs waits for it

ABREAST: list[int] = []  # how many take turns, innermost last


def sharing() -> int:
    """How many runs share the device with the one that asks, itself included."""
    return ABREAST[-1] if ABREAST else 1


def alone(run: Going[Value], device: torch.device) -> Value:
    """Takes all steps of one run."""
    with current(device):
        while True:
            try:
                next(run)
            except StopIteration as end:
                result: Value = end.value
                return result


def abreast(
    runs: Sequence[Going[Value]],
    device: torch.device,
    most: int | None = None,
    failed: Callable[[int, Exception], None] = lambda _run, _failure: None,
) -> list[Value]:
    """Takes a step of each run in turn, until all have come to their end; of more than `most`, the next begins as soon
    as one has ended.

    Every run has random numbers of its own, which stand where it left them, and on a GPU a stream of its own: it comes
    out as if it had been alone. After one that fails, which is told at once, or that is told to stop, no other begins,
    and those that have come to their end, or to their checkpoint; then the failure is raised.

    A run that is about to wait for the device, as between two epochs, lets the others go ahead first, so that the
    device has work meanwhile; as long as one is left to do so, no two wait one right after the other.
    """
    results: dict[int, Value] = {}
    failures: list[Exception] = []
    before = generator_states(device)
    states = [before for _ in runs]
    later = deque(range(len(runs)))
    going = [later.popleft() for _ in range(min(most or len(runs), len(runs)))]
    streams: dict[int, torch.cuda.Stream | None] = {}
    waiting: dict[int, int] = {}  # since which turn
    turn = waited = 0

    def take(k: int) -> None:
        ABREAST[-1] = len(going)
        set_generator_states(states[k], device)
        try:
            with on(streams[k]):
                if next(runs[k]):
                    waiting[k] = turn
        except StopIteration as end:
            results[k] = end.value
            going.remove(k)
            if later and not failures and not asked_to_stop():
                going.append(later.popleft())
                streams[going[-1]] = streams.pop(k)
        except Exception as failure:
            let_go(failure)
            failures.append(failure)
            going.remove(k)
            if not isinstance(failure, Interrupted):
                failed(k, failure)
        states[k] = generator_states(device)

    try:
        with current(device), taking_turns():
            streams |= {k: apart() if device.type == "cuda" else None for k in going}
            while going:
                ready = [k for k in going if k not in waiting]
                due = (k for k, since in waiting.items() if not ready or turn - max(since, waited) >= AHEAD)
                longest = next(due, None)
                if longest is not None:
                    del waiting[longest]
                    take(longest)
                    waited = turn
                    continue
                turn += 1
                for k in ready:
                    take(k)
    finally:
        for run in runs:
            run.close()  # whoever ended this in another way leaves nobody halfway
        set_generator_states(before, device)
    if failures:
        raise next((failure for failure in failures if not isinstance(failure, Interrupted)), failures[0])
    if len(results) < len(runs):  # asked to stop when all that had begun were at their end
        raise Interrupted(
            f"stopped before {len(runs) - len(results)} of {len(runs)} runs began; the same command goes on",
            signal.SIGTERM,
        )
    return [results[k] for k in range(len(runs))]


def let_go(failure: BaseException | None) -> None:
    """Of what the frames of a failure hold: the run's memory, while the others go on."""
    while failure is not None:
        traceback.clear_frames(failure.__traceback__)
        failure = failure.__cause__ or failure.__context__


@contextlib.contextmanager
def taking_turns() -> Iterator[None]:
    """Inside, runs know that they share the device."""
    ABREAST.append(1)
    try:
        yield
    finally:
        ABREAST.pop()


def on(stream: torch.cuda.Stream | None) -> Any:
    if stream is None:
        return contextlib.nullcontext()
    return torch.cuda.stream(stream)


class Together:
    """The progress of several runs as that of one: the first still going speaks for all."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.rates: dict[int, float] = {}  # of those that have begun and not ended
        self.names: dict[int, str] = {}

    def of(self, k: int, name: str) -> Progress:
        self.names[k] = name
        return Member(self, k, name)

    def following(self, k: int, run: Going[Value]) -> Going[Value]:
        """The run, which counts from its first step to its end, whatever that is."""
        self.rates[k] = 0.0
        try:
            return (yield from run)
        finally:
            del self.rates[k]

    def update(self, k: int, done: int, total: int, loss: float, lr: float, rate: float) -> None:
        self.rates[k] = rate
        if k == min(self.rates):
            self.progress.update(done, total, loss, lr, sum(self.rates.values()))

    def failed(self, k: int, failure: Exception) -> None:
        self.progress.message(f"{self.names[k]}: {type(failure).__name__}: {failure}; no other run begins")


class Member:
    """One of them."""

    def __init__(self, together: Together, k: int, name: str) -> None:
        self.together, self.k, self.name = together, k, name

    def update(self, done: int, total: int, loss: float, lr: float, rate: float) -> None:
        self.together.update(self.k, done, total, loss, lr, rate)

    def message(self, text: str) -> None:
        self.together.progress.message(f"{self.name}: {text}")
