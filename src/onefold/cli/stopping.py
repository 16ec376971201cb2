"""SIGTERM is handled like Ctrl-C, except in the training loop, which has its own handler."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Inside, SIGTERM ends this process like Ctrl-C does; in forked processes it has its usual effect."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    owner, before = os.getpid(), signal.getsignal(signal.SIGTERM)

    def stop(number: int, _: FrameType | None) -> None:
        if os.getpid() == owner:
            raise KeyboardInterrupt
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before if before is not None else signal.SIG_DFL)
