"""Turns SIGINT, SIGTERM and SIGHUP into a request to stop, which the loop polls between steps."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

from onefold.ending import STOPPING, hang_up


class Interrupted(RuntimeError):
    """The run was asked to stop by `signal`, and has saved a checkpoint."""

    def __init__(self, message: str, signal: signal.Signals) -> None:
        super().__init__(message)
        self.signal = signal


class Wish:
    """The signal that asked to stop, if any."""

    signal: signal.Signals | None = None


class Listener:
    """Records the first SIGINT, SIGTERM or SIGHUP for all runs in progress; a second one takes its usual effect, except
    SIGHUP, which a terminal that closes may send twice. SIGHUP stays ignored where it was, as under nohup."""

    def __init__(self) -> None:
        self.runs = 0
        self.wish = Wish()
        self.before: dict[signal.Signals, Any] = {}

    def enter(self) -> Wish:
        if self.runs == 0:
            self.wish, self.owner = Wish(), os.getpid()
            self.before = {number: signal.getsignal(number) for number in STOPPING}
            if self.before[signal.SIGHUP] is signal.SIG_IGN:
                del self.before[signal.SIGHUP]
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
            if number == signal.SIGHUP:
                hang_up()
        elif number == signal.SIGHUP:
            return
        elif os.getpid() == self.owner or number == signal.SIGTERM:
            # A second signal, or SIGTERM in a data loader's worker process, which must end. Ctrl-C in a terminal also
            # reaches the workers: they ignore it and go on.
            signal.signal(number, self.before[signal.Signals(number)] or signal.SIG_DFL)
            os.kill(os.getpid(), number)


LISTENER = Listener()


def ask_to_stop() -> None:
    """Asks to stop without a signal: every run in progress saves a checkpoint after its current step, and stops."""
    if LISTENER.runs and LISTENER.wish.signal is None:
        LISTENER.wish.signal = signal.SIGTERM


def asked_to_stop() -> bool:
    """Whether the runs in progress have been asked to stop."""
    return LISTENER.runs > 0 and LISTENER.wish.signal is not None


@contextlib.contextmanager
def interruptions(enabled: bool) -> Iterator[Wish]:
    """Inside, signals are recorded instead of raised. Interleaved runs share the record, and may end in any order."""
    if not enabled or threading.current_thread() is not threading.main_thread():
        yield Wish()
        return
    try:
        yield LISTENER.enter()
    finally:
        LISTENER.leave()
