"""Writes files in the background during training, one after another."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Thread

PENDING = 2  # writes in progress at most: an epoch saves the best weights and a checkpoint


class Write(Thread):
    """One write, which starts once the previous one has succeeded."""

    def __init__(self, write: Callable[[], object], before: Write | None) -> None:
        super().__init__(name="onefold-writer")
        self.write, self.before = write, before
        self.failure: BaseException | None = None

    def run(self) -> None:
        if self.before is not None:
            self.before.join()
            self.failure, self.before = self.before.failure, None
        if self.failure is None:  # otherwise a checkpoint might refer to weights that were not written
            try:
                self.write()
            except BaseException as failure:  # raised later in the thread that waits
                self.failure = failure
        del self.write  # frees the copies that it holds


class Writer:
    """Runs writes in order, each in a thread, and none after one that failed.

    A failure is raised by the next call of any method. Threads that are still writing keep the process alive until they
    are done.
    """

    def __init__(self) -> None:
        self.pending: deque[Write] = deque()

    def make_room(self) -> None:
        """Waits while too many writes are in progress, since each holds a copy of its data in memory."""
        self.look()
        while len(self.pending) >= PENDING:
            self.next()

    def later(self, write: Callable[[], object]) -> None:
        self.make_room()
        begun = Write(write, self.pending[-1] if self.pending else None)
        try:
            begun.start()
        except RuntimeError:  # since Python 3.12, no thread can be started once the main thread has ended
            self.wait()
            write()
        else:
            self.pending.append(begun)

    def look(self) -> None:
        """Collects finished writes, raising their failures, without waiting."""
        while self.pending and not self.pending[0].is_alive():
            self.next()

    def wait(self) -> None:
        """Waits until everything is on disk."""
        while self.pending:
            self.next()

    def next(self) -> None:
        self.pending[0].join()
        ended = self.pending.popleft()
        if ended.failure is not None:
            raise ended.failure
