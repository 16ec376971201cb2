"""How the engine tells what it is doing."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

LOG = logging.getLogger("onefold")


class Progress(Protocol):
    """Told about every long stage; a stage ends with done = total."""

    def update(self, done: int, total: int, loss: float, lr: float, rate: float) -> None:
        """Steps done of all, the mean loss lately, the learning rate, examples a second."""

    def message(self, text: str) -> None:
        """A sentence worth reading."""


class Silent:
    """Says nothing."""

    def update(self, done: int, total: int, loss: float, lr: float, rate: float) -> None:
        pass

    def message(self, text: str) -> None:
        pass


class Logged:
    """Tells Python's logging, as `onefold`: sentences as INFO, which nobody sees who has not asked for it, and what may
    be a mistake as WARNING, which Python shows by itself. The loop adds a line for each epoch, whoever listens."""

    def update(self, done: int, total: int, loss: float, lr: float, rate: float) -> None:
        pass

    def message(self, text: str) -> None:
        LOG.info(text)

    def note(self, text: str) -> None:
        LOG.warning(text)


def listening(progress: Progress | None, rank: int) -> Progress:
    """Who is told: of several processes the first alone speaks, to the log where nobody else is given."""
    return Silent() if rank else Logged() if progress is None else progress


def noting(progress: Progress) -> Callable[[str], None]:
    """Where sentences about what may be a mistake go: some listeners tell them from the others."""
    note: Callable[[str], None] = getattr(progress, "note", progress.message)
    return note


def epoch_line(epoch: int, epochs: int, loss: float, val: dict[str, float] | None, seconds: float) -> str:
    """What an epoch has brought, and how long the rest will take if it goes on like this."""
    measured = "" if val is None else f", val ACC {100 * val['acc']:.2f}% and NLL {val['nll']:.4f}"
    left = f", {duration(seconds / epoch * (epochs - epoch))} left" if epoch < epochs else ""
    return f"epoch {epoch} of {epochs}: loss {loss:#.4g}{measured}, {duration(seconds)} so far{left}"


def duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
