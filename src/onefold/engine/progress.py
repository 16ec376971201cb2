"""How the engine reports its progress."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

LOG = logging.getLogger("onefold")


class Progress(Protocol):
    """Receives reports on every long stage; a stage ends with done = total."""

    def update(self, done: int, total: int, loss: float, lr: float, rate: float) -> None:
        """Steps done and in total, the recent mean loss, the learning rate, and examples per second."""

    def message(self, text: str) -> None:
        """A message for the user."""


class Silent:
    """Reports nothing."""

    def update(self, done: int, total: int, loss: float, lr: float, rate: float) -> None:
        pass

    def message(self, text: str) -> None:
        pass


class Logged:
    """Logs to Python's logger `onefold`: messages as INFO, which are hidden by default, and likely mistakes as WARNING,
    which Python shows by default. The training loop itself logs a line per epoch, whatever progress is used."""

    def update(self, done: int, total: int, loss: float, lr: float, rate: float) -> None:
        pass

    def message(self, text: str) -> None:
        LOG.info(text)

    def note(self, text: str) -> None:
        LOG.warning(text)


def listening(progress: Progress | None, rank: int) -> Progress:
    """The progress to report to: the given one, or the log. Of several processes only the first reports."""
    return Silent() if rank else Logged() if progress is None else progress


def noting(progress: Progress) -> Callable[[str], None]:
    """Where warnings about likely mistakes go: `progress.note` if it exists, else `progress.message`."""
    note: Callable[[str], None] = getattr(progress, "note", progress.message)
    return note


def epoch_line(epoch: int, epochs: int, loss: float, val: dict[str, float] | None, seconds: float) -> str:
    """One line about an epoch: loss, validation metrics, time so far, and an estimate of the time left."""
    measured = "" if val is None else f", val ACC {100 * val['acc']:.2f}% and NLL {val['nll']:.4f}"
    left = f", {duration(seconds / epoch * (epochs - epoch))} left" if epoch < epochs else ""
    return f"epoch {epoch} of {epochs}: loss {loss:#.4g}{measured}, {duration(seconds)} so far{left}"


def duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
