"""How the engine tells what it is doing."""

from __future__ import annotations

from typing import Protocol


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
