"""SIGINT and SIGTERM as a wish that the loop asks about between two steps."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType


class Interrupted(RuntimeError):
    """The run was asked to stop, and has saved itself; `signal` says by what."""

    def __init__(self, message: str, signal: signal.Signals) -> None:
        super().__init__(message)
        self.signal = signal


class Wish:
    """Which signal asked to stop, if any did."""

    signal: signal.Signals | None = None


@contextlib.contextmanager
def interruptions(enabled: bool) -> Iterator[Wish]:
    """Inside, the first SIGINT or SIGTERM is noted and the second one acts as usual."""
    wish = Wish()
    if not enabled or threading.current_thread() is not threading.main_thread():
        yield wish
        return
    owner = os.getpid()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def note(number: int, _: FrameType | None) -> None:
        if os.getpid() == owner and wish.signal is None:
            wish.signal = signal.Signals(number)
        elif os.getpid() == owner or number == signal.SIGTERM:
            # Asked twice; or a loader's worker that is to end. Ctrl-C in a terminal reaches workers too: they go on.
            signal.signal(number, before[signal.Signals(number)] or signal.SIG_DFL)
            os.kill(os.getpid(), number)

    for number in before:
        signal.signal(number, note)
    try:
        yield wish
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
