"""Keeps track of which task is next, which are done, and of the overall progress."""

from __future__ import annotations

from collections.abc import Sequence

from onefold.demo.tasks import Student, Task


class Board:
    """Tasks that are waiting, running or done. A student waits for the teachers in its folder."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self.tasks, self.waiting = list(tasks), list(tasks)
        self.share = dict.fromkeys(tasks, 0.0)  # how much of each task is done
        self.tries: dict[Task | None, int] = {}

    @property
    def finished(self) -> bool:
        return all(self.share[task] == 1 for task in self.tasks)

    @property
    def progress(self) -> tuple[int, int, str]:
        """The work done and the total, in thousandths of a teacher's work; and the number of tasks done, in words."""
        reached = sum(task.cost * self.share[task] for task in self.tasks)
        trained = sum(self.share[task] == 1 for task in self.tasks)
        total = sum(task.cost for task in self.tasks)
        return round(1000 * reached), round(1000 * total), f"{trained} of {len(self.tasks)} networks"

    def next(self) -> Task | None:
        """The longest task that can start, so that all workers end at about the same time."""
        able = [task for task in self.waiting if self.can_begin(task)]
        if not able:
            return None
        chosen = max(able, key=lambda task: task.cost)
        self.waiting.remove(chosen)
        return chosen

    def can_begin(self, task: Task) -> bool:
        if not isinstance(task, Student):
            return True
        needed = [t for t in self.tasks if not isinstance(t, Student) and t.folder == task.folder]
        return all(self.share[teacher] == 1 for teacher in needed)

    def reached(self, task: Task, share: float) -> None:
        self.share[task] = 0.99 * share  # the network still has to be evaluated

    def done(self, task: Task) -> None:
        self.share[task] = 1

    def give_back(self, task: Task | None) -> int:
        """Puts back a task whose worker is gone, and returns how often that has happened to it. None stands for workers
        that had not yet started a task."""
        if task is not None:
            self.waiting.insert(0, task)
        self.tries[task] = self.tries.get(task, 0) + 1
        return self.tries[task]
