"""What people see while they wait: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import errno
import os
import time
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Column

EVERY = 10.0  # seconds between two plain lines of a stage


HUSHED: list[bool] = []  # of several processes only the first is heard


def hush() -> None:
    """Nothing is shown from here on."""
    HUSHED.append(True)


def hushed() -> bool:
    return bool(HUSHED)


class Speaker(Console):
    """Rich's console, which would end the process by itself where nobody listens any more."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


class Stage(Protocol):
    """A long stage: what it is called, what the engine tells of it, and how far other work has come."""

    def title(self, text: str) -> None: ...

    def update(self, done: int, total: int, loss: float, lr: float, rate: float) -> None: ...

    def count(self, done: int, total: int, detail: str = "") -> None: ...

    def message(self, text: str) -> None: ...


class Display(Protocol):
    """Shows stages, as many at a time as there are."""

    def stage(self, title: str) -> Stage: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def display(console: Console | None = None) -> Display:
    """Bars where there is a terminal to draw them on."""
    console = Speaker(stderr=True, quiet=hushed()) if console is None else console
    return Bars(console) if console.is_terminal else Lines(console)


def attended() -> bool:
    """Whether somebody is likely to look: at a terminal, or in a notebook."""
    console = Speaker(stderr=True, quiet=hushed())
    return console.is_terminal or console.is_jupyter


def described(loss: float, lr: float, rate: float) -> str:
    return f"{rate:,.0f} examples/s, loss {loss:#.4g}, lr {lr:.4f}"


def say(text: str) -> None:
    """A sentence beside the results."""
    Speaker(stderr=True, quiet=hushed()).print(text, markup=False, emoji=False, highlight=False, soft_wrap=True)


class Bars:
    """A bar for each stage, with rate, loss, learning rate and time left."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.bars = Progress(
            TextColumn("{task.description}", markup=False),  # a path may hold what looks like it
            BarColumn(bar_width=None),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("{task.fields[detail]}"),
            TimeRemainingColumn(table_column=Column(min_width=7, no_wrap=True)),  # the others give way
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
    """One bar; it goes when the stage has ended, and comes back with the next."""

    def __init__(self, bars: Progress, title: str) -> None:
        self.bars, self.text = bars, title
        self.task: TaskID | None = None

    def title(self, text: str) -> None:
        self.text = text
        if self.task is not None:
            self.bars.update(self.task, description=text)

    def update(self, done: int, total: int, loss: float, lr: float, rate: float) -> None:
        self.count(done, total, described(loss, lr, rate))

    def count(self, done: int, total: int, detail: str = "") -> None:
        if self.task is None:
            self.task = self.bars.add_task(self.text, total=total, completed=done, detail=detail)
        self.bars.update(self.task, completed=done, total=total, detail=detail)
        if done >= total:
            self.bars.remove_task(self.task)
            self.task = None

    def message(self, text: str) -> None:
        self.bars.console.print(text, markup=False, emoji=False, highlight=False)


class Lines:
    """A line now and then."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def stage(self, title: str) -> LineStage:
        return LineStage(self.console, title)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


class LineStage:
    """Lines of one stage."""

    def __init__(self, console: Console, title: str) -> None:
        self.console, self.text = console, title
        self.begun: tuple[float, int] | None = None  # when, and after how many steps
        self.said = 0.0

    def title(self, text: str) -> None:
        self.text = text

    def update(self, done: int, total: int, loss: float, lr: float, rate: float) -> None:
        self.count(done, total, described(loss, lr, rate))

    def count(self, done: int, total: int, detail: str = "") -> None:
        now = time.monotonic()
        if self.begun is None:
            self.begun, self.said = (now, done), now
        if done < total and now - self.said < EVERY:
            return
        self.said = now
        left = f"{self.left(now, done, total):.0f} s left" if done < total else ""
        parts = [f"{100 * done / total:3.0f}%", detail, left]
        self.message(f"{self.text}: " + ", ".join(part for part in parts if part))
        if done >= total:
            self.begun = None

    def left(self, now: float, done: int, total: int) -> float:
        """Seconds, if it goes on as it has so far."""
        assert self.begun is not None, "set by the first update"
        then, before = self.begun
        return (now - then) / max(done - before, 1) * (total - done)

    def message(self, text: str) -> None:
        self.console.print(text, markup=False, emoji=False, highlight=False, soft_wrap=True)
