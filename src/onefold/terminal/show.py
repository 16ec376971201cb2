"""Chooses how the progress of long stages is shown."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

from rich.console import Console

from onefold.terminal.bars import Bars
from onefold.terminal.lines import Lines
from onefold.terminal.speak import Speaker, hushed


class Stage(Protocol):
    """A long stage: its title, progress of training steps from the engine (`update`), and of other work (`count`)."""

    def title(self, text: str) -> None: ...

    def update(self, done: int, total: int, loss: float, lr: float, rate: float) -> None: ...

    def count(self, done: int, total: int, detail: str = "") -> None: ...

    def message(self, text: str) -> None: ...


class Display(Protocol):
    """Shows any number of stages at the same time."""

    def stage(self, title: str) -> Stage: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def display(console: Console | None = None) -> Display:
    """Bars if there is a terminal to draw them on, else lines."""
    console = Speaker(stderr=True, quiet=hushed()) if console is None else console
    return Bars(console) if console.is_terminal else Lines(console)


def attended() -> bool:
    """Whether somebody is likely watching: on a terminal, or in a notebook."""
    console = Speaker(stderr=True, quiet=hushed())
    return console.is_terminal or console.is_jupyter
