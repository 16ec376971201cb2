"""Progress as occasional lines, if there is no terminal to draw bars on."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console

from onefold.terminal.told import told

EVERY = 10.0  # seconds between lines of a stage
EARLY, SOON = 0.01, 60.0  # before this share is done, there is no estimate for that many seconds


class Lines:
    """Shows stages as lines."""

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
    """The lines of one stage."""

    def __init__(self, console: Console, title: str) -> None:
        self.console, self.text = console, title
        self.begun: tuple[float, int] | None = None  # when, and after how many steps
        self.said = 0.0

    def title(self, text: str) -> None:
        self.text = text

    def update(self, done: int, total: int, loss: float, lr: float, rate: float) -> None:
        self.count(done, total, ", ".join(told(loss, lr, rate)))

    def count(self, done: int, total: int, detail: str = "") -> None:
        now = time.monotonic()
        if self.begun is None:
            self.begun, self.said = (now, done), now
        if done < total and now - self.said < EVERY:
            return
        self.said = now
        parts = [f"{100 * done / total:3.0f}%", detail, self.left(now, done, total)]
        self.message(f"{self.text}: " + ", ".join(part for part in parts if part))
        if done >= total:
            self.begun = None

    def left(self, now: float, done: int, total: int) -> str:
        """How long it will take at the average speed so far; empty at the end, and while too little is done to tell."""
        assert self.begun is not None, "set by the first update"
        then, before = self.begun
        early = done - before < EARLY * (total - before) and now - then < SOON
        if done in (before, total) or early:
            return ""
        return f"{(now - then) / (done - before) * (total - done):.0f} s left"

    def message(self, text: str) -> None:
        self.console.print(text, markup=False, emoji=False, highlight=False, soft_wrap=True)
