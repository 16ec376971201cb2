"""How the program ends when a signal comes while it is starting, or when its terminal is gone."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import threading
from collections.abc import Iterator
from types import FrameType

INTERRUPTED = 130
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """Inside, signals end the program with one line: an exception in an import may be lost or leave half a module."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in STOPPING}
    before = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


def leave(_: int, __: FrameType | None) -> None:
    if os.environ.get("RANK", "0") == "0":  # of several processes, the first one speaks
        with contextlib.suppress(OSError):
            os.write(2, b"onefold: interrupted\n")
    os._exit(INTERRUPTED)


def hang_up() -> None:
    """After SIGHUP: if the terminal is gone, what is still written to it is discarded, instead of failing."""
    for number in (1, 2):
        with contextlib.suppress(OSError):
            if stat.S_ISCHR(os.fstat(number).st_mode) and not os.isatty(number):
                os.dup2(os.open(os.devnull, os.O_WRONLY), number)
