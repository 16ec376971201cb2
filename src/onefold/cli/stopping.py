"""SIGTERM and SIGHUP are handled like Ctrl-C, except in the training loop, which has its own handler."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from onefold.ending import hang_up


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Inside, SIGTERM and SIGHUP end this process like Ctrl-C does; in forked processes they have their usual effect.
    SIGHUP stays ignored where it was, as under nohup."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    owner, before = os.getpid(), {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    if before[signal.SIGHUP] is signal.SIG_IGN:
        del before[signal.SIGHUP]

    def stop(number: int, _: FrameType | None) -> None:
        if os.getpid() == owner:
            if number == signal.SIGHUP:  # a terminal that closes may send it twice
                signal.signal(number, signal.SIG_IGN)
                hang_up()
            raise KeyboardInterrupt
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
