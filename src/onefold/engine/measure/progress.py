"""How a measurement tells how far it has come."""

from __future__ import annotations

from typing import Protocol


class Counting(Protocol):
    """A stage that is counted and ends with done = total, and sentences beside it."""

    def title(self, text: str) -> None: ...

    def count(self, done: int, total: int, detail: str = "") -> None: ...

    def message(self, text: str) -> None: ...


class Quiet:
    """Says nothing."""

    def title(self, text: str) -> None:
        pass

    def count(self, done: int, total: int, detail: str = "") -> None:
        pass

    def message(self, text: str) -> None:
        pass
