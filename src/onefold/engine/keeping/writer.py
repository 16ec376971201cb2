"""Files written beside the training, one after the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Thread

PENDING = 2  # the best weights and a checkpoint: what an epoch has to keep


class Write(Thread):
    """One write, once the one before has ended well."""

    def __init__(self, write: Callable[[], object], before: Write | None) -> None:
        super().__init__(name="onefold-writer")
        self.write, self.before = write, before
        self.failure: BaseException | None = None

    def run(self) -> None:
        if self.before is not None:
            self.before.join()
            self.failure, self.before = self.before.failure, None
        if self.failure is None:  # else: a checkpoint must not refer to weights that are not there
            try:
                self.write()
            except BaseException as failure:  # whoever waits is told
                self.failure = failure
        del self.write  # and what it holds


class Writer:
    """Writes in the order they were asked for, each by a thread, and none after one that failed.

    What failed is raised where a write is next asked for, looked at or waited for. Threads that are under way keep the
    process until they have ended.
    """

    def __init__(self) -> None:
        self.pending: deque[Write] = deque()

    def make_room(self) -> None:
        """Waits where many are under way: memory holds what each of them writes."""
        self.look()
        while len(self.pending) >= PENDING:
            self.next()

    def later(self, write: Callable[[], object]) -> None:
        self.make_room()
        begun = Write(write, self.pending[-1] if self.pending else None)
        try:
            begun.start()
        except RuntimeError:  # from Python 3.12 on none begins once the main thread has ended
            self.wait()
            write()
        else:
            self.pending.append(begun)

    def look(self) -> None:
        """Does not wait."""
        while self.pending and not self.pending[0].is_alive():
            self.next()

    def wait(self) -> None:
        """Until all is on the disk."""
        while self.pending:
            self.next()

    def next(self) -> None:
        self.pending[0].join()
        ended = self.pending.popleft()
        if ended.failure is not None:
            raise ended.failure
