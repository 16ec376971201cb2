"""SIGINT and SIGTERM as a wish that the loop asks about between two steps."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any


class Interrupted(RuntimeError):
    """The run was asked to stop, and has saved itself; `signal` says by what."""

    def __init__(self, message: str, signal: signal.Signals) -> None:
        super().__init__(message)
        self.signal = signal


class Wish:
    """Which signal asked to stop, if any did."""

    signal: signal.Signals | None = None


class Listener:
    """Notes the first SIGINT or SIGTERM for all runs that are going on; the second one acts as usual."""

    def __init__(self) -> None:
        self.runs = 0
        self.wish = Wish()
        self.before: dict[signal.Signals, Any] = {}

    def enter(self) -> Wish:
        if self.runs == 0:
            self.wish, self.owner = Wish(), os.getpid()
            self.before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
            for number in self.before:
                signal.signal(number, self.note)
        self.runs += 1
        return self.wish

    def leave(self) -> None:
        self.runs -= 1
        if self.runs == 0:
            for number, handler in self.before.items():
                signal.signal(number, handler if handler is not None else signal.SIG_DFL)

    def note(self, number: int, _: FrameType | None) -> None:
        if os.getpid() == self.owner and self.wish.signal is None:
            self.wish.signal = signal.Signals(number)
        elif os.getpid() == self.owner or number == signal.SIGTERM:
            # Asked twice; or a loader's worker that is to end. Ctrl-C in a terminal reaches workers too: they go on.
            signal.signal(number, self.before[signal.Signals(number)] or signal.SIG_DFL)
            os.kill(os.getpid(), number)


LISTENER = Listener()


def ask_to_stop() -> None:
    """The same wish without a signal: every run that is going on saves itself after its step, and stops."""
    if LISTENER.runs and LISTENER.wish.signal is None:
        LISTENER.wish.signal = signal.SIGTERM


def asked_to_stop() -> bool:
    """Whether the runs that are going on have been asked to."""
    return LISTENER.runs > 0 and LISTENER.wish.signal is not None


@contextlib.contextmanager
def interruptions(enabled: bool) -> Iterator[Wish]:
    """Inside, a signal is a wish. Runs side by side share it, and may end in any order."""
    if not enabled or threading.current_thread() is not threading.main_thread():
        yield Wish()
        return
    try:
        yield LISTENER.enter()
    finally:
        LISTENER.leave()
