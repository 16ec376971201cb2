"""How many threads torch uses on the CPU."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Inside, torch uses one thread: sums are always added in the same order, and no thread spins while others work.

    If another program keeps one of two cores busy, small operations take ten times as long in two threads as in one.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
