"""Several runs interleaved on one device, so that each uses what the others leave idle."""

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
# A run in progress: yields after every step and returns its result; yields True if it is about to wait for the device.
Going = Generator[bool | None, None, Value]
AHEAD = 32  # turns that the other runs take, to queue work on the device, before one run waits for it

ABREAST: list[int] = []  # how many runs take turns, innermost last


def sharing() -> int:
    """How many runs share the device, including the calling one."""
    return ABREAST[-1] if ABREAST else 1


def alone(run: Going[Value], device: torch.device) -> Value:
    """Runs a single run to its end."""
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
    """Takes one step of each run in turn until all have ended. At most `most` runs are interleaved: the next begins as
    soon as one ends.

    Every run has its own random state, saved and restored between its turns, and on a GPU its own stream: its result
    is the same as if it had run alone. If a run fails (reported at once through `failed`) or is asked to stop, no
    further run begins; those in progress continue to their end, or to their checkpoint if asked to stop, and then the
    failure is raised.

    A run that is about to wait for the device, as between two epochs, first lets the others take some turns, so that
    the device has work meanwhile; as long as any run is not waiting, no two waits follow each other directly.
    """
    results: dict[int, Value] = {}
    failures: list[Exception] = []
    before = generator_states(device)
    states = [before for _ in runs]
    later = deque(range(len(runs)))
    going = [later.popleft() for _ in range(min(most or len(runs), len(runs)))]
    streams: dict[int, torch.cuda.Stream | None] = {}
    waiting: dict[int, int] = {}  # runs about to wait for the device, and since which turn
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
            run.close()  # after any other exception, the runs still in progress clean up
        set_generator_states(before, device)
    if failures:
        raise next((failure for failure in failures if not isinstance(failure, Interrupted)), failures[0])
    if len(results) < len(runs):  # asked to stop just when every run that had begun was at its end
        raise Interrupted(
            f"stopped before {len(runs) - len(results)} of {len(runs)} runs; run the same command again to resume",
            signal.SIGTERM,
        )
    return [results[k] for k in range(len(runs))]


def let_go(failure: BaseException | None) -> None:
    """Clears the frames of a failure's traceback, which would hold the failed run's memory while the others go on."""
    while failure is not None:
        traceback.clear_frames(failure.__traceback__)
        failure = failure.__cause__ or failure.__context__


@contextlib.contextmanager
def taking_turns() -> Iterator[None]:
    """Inside, `sharing` tells runs that they share the device."""
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
    """Reports the progress of several runs as one: the first run in progress stands for all."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.rates: dict[int, float] = {}  # examples a second of each run in progress
        self.names: dict[int, str] = {}

    def of(self, k: int, name: str) -> Progress:
        self.names[k] = name
        return Member(self, k, name)

    def following(self, k: int, run: Going[Value]) -> Going[Value]:
        """Wraps a run, so that it counts as in progress from its first step until it ends in any way."""
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
        self.progress.message(f"{self.names[k]}: {type(failure).__name__}: {failure}; no further run starts")


class Member:
    """The progress of one of the runs."""

    def __init__(self, together: Together, k: int, name: str) -> None:
        self.together, self.k, self.name = together, k, name

    def update(self, done: int, total: int, loss: float, lr: float, rate: float) -> None:
        self.together.update(self.k, done, total, loss, lr, rate)

    def message(self, text: str) -> None:
        self.together.progress.message(f"{self.name}: {text}")
