"""Progress bars on a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Self

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.progress import BarColumn, Progress, Task, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Column, Table

from onefold.terminal.told import told
from onefold.terminal.wrap import wrapped

BAR = 12  # least width of a bar
BESIDE = 15  # width of the rest of every line: percentage, time left, and spaces
WIDE = 100  # width of a terminal that has room for everything
TITLE = 16  # titles are not cut below this width to make room for details
KEPT = 2  # parts of a detail on a narrower terminal

Texts = tuple[str, Sequence[str]]  # of a line: its title, and the parts of its detail


class Bars:
    """A bar for each stage, with rate, loss, learning rate and time left."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.bars = Fitting(
            TextColumn("{task.fields[title]}", markup=False),  # a path may contain what looks like markup
            BarColumn(bar_width=None),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("{task.fields[detail]}", markup=False),
            TimeRemainingColumn(table_column=Column(min_width=7, no_wrap=True)),
            console=console,
            transient=True,
            expand=True,
        )

    def stage(self, title: str) -> BarStage:
        return BarStage(self.bars, title)

    def __enter__(self) -> Self:
        self.bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bars.stop()


class BarStage:
    """One bar; it disappears when the stage has ended, and comes back with the next."""

    def __init__(self, bars: Progress, title: str) -> None:
        self.bars, self.text = bars, title
        self.task: TaskID | None = None

    def title(self, text: str) -> None:
        self.text = text
        if self.task is not None:
            self.bars.update(self.task, description=text)

    def update(self, done: int, total: int, loss: float, lr: float, rate: float) -> None:
        self.show(done, total, told(loss, lr, rate))

    def count(self, done: int, total: int, detail: str = "") -> None:
        self.show(done, total, (detail,))

    def show(self, done: int, total: int, parts: Sequence[str]) -> None:
        if self.task is None:
            self.task = self.bars.add_task(self.text, total=total, completed=done, parts=parts)
        self.bars.update(self.task, completed=done, total=total, parts=parts)
        if done >= total:
            self.bars.remove_task(self.task)
            self.task = None

    def message(self, text: str) -> None:
        text = wrapped(text, self.bars.console.width)
        self.bars.console.print(text, markup=False, emoji=False, highlight=False, soft_wrap=True)


class Fitting(Progress):
    """Rich's progress bars, with texts shortened to leave room for the bars; rich itself would shrink the bars."""

    def make_tasks_table(self, tasks: Iterable[Task]) -> Table:
        tasks = list(tasks)
        if tasks:  # rich draws an empty table before it has a console
            texts = fitting([(task.description, task.fields["parts"]) for task in tasks], self.console.width)
            for task, (title, detail) in zip(tasks, texts, strict=True):
                task.fields |= {"title": title, "detail": detail}
        return super().make_tasks_table(tasks)


def fitting(texts: Sequence[Texts], width: int) -> list[tuple[str, str]]:
    """Titles and details that leave enough room for bars. First the last parts of details are dropped, then titles are
    cut, and if that is not enough, there are no details."""
    room = width - BESIDE - BAR
    short = [(shorter(title), parts) for title, parts in texts]
    most = max((len(parts) for _, parts in texts), default=0)
    tries = [(texts, most), *((short, count) for count in range(most, 0, -1))]
    for lines, count in tries if width >= WIDE else [(short, count) for count in range(min(most, KEPT), 0, -1)]:
        made = [(title, ", ".join(parts[:count])) for title, parts in lines]
        if widest(title for title, _ in made) + widest(detail for _, detail in made) <= room:
            return made
    left = room - widest(parts[0] for _, parts in texts)
    if left < TITLE:
        return [(cut(title, room), "") for title, _ in short]
    return [(cut(title, left), parts[0]) for title, parts in short]


def widest(texts: Iterable[str]) -> int:
    return max(map(cell_len, texts), default=0)


def shorter(title: str) -> str:
    """Shortens `seed 0, kd` to `s0 kd`."""
    return re.sub(r"\bseed (\d+),?", r"s\1", title)


def cut(title: str, room: int) -> str:
    return title if cell_len(title) <= room else set_cell_size(title, max(room - 1, 0)).rstrip() + "…"
