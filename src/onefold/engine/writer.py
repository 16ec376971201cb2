"""Files written by a thread, while training goes on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

PENDING = 2  # the best weights and a checkpoint: what an epoch has to keep


class Writer:
    """One write after the other, in the order they were asked for, and none after one that failed.

    What failed is raised where a write is next asked for, looked at or waited for.
    """

    def __init__(self) -> None:
        self.thread: ThreadPoolExecutor | None = None
        self.pending: deque[Future[None]] = deque()
        self.failed = False

    def later(self, write: Callable[[], object]) -> None:
        """Begins when those before have ended; waits for them where there are many, for memory holds each of them."""
        self.look()
        while len(self.pending) >= PENDING:
            self.pending.popleft().result()
        self.thread = self.thread or ThreadPoolExecutor(1, "writer")
        self.pending.append(self.thread.submit(self.attempt, write))

    def attempt(self, write: Callable[[], object]) -> None:
        if self.failed:
            return  # a checkpoint must not refer to weights that are not there
        self.failed = True
        write()
        self.failed = False

    def look(self) -> None:
        """Does not wait."""
        while self.pending and self.pending[0].done():
            self.pending.popleft().result()

    def wait(self) -> None:
        """Until all is on the disk."""
        while self.pending:
            self.pending.popleft().result()

    def close(self) -> None:
        """Waits, and lets the thread go."""
        try:
            self.wait()
        finally:
            if self.thread is not None:
                self.thread.shutdown()
            self.thread = None
