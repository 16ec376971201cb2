"""How many threads torch computes in."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Inside, torch computes in one thread: sums are formed in one order, and no threads spin while others work.

    Where something else keeps one of two cores busy, small pieces in two threads take ten times as long as in one.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
