"""What happens to the others when a process ends early: they end too, and only one speaks."""

from __future__ import annotations

import os
import threading
import time

from torch.distributed.distributed_c10d import Store

KEY = "onefold/failed"
LOOK = 0.5  # seconds


class Lost(RuntimeError):
    """Another process has ended, by itself or by somebody's hand."""


class Abandoned(RuntimeError):
    """The first process has refused to go on, and says why itself."""


def claim(store: Store, code: int) -> bool:
    """Whether this process is the first to fail, and so the one that says why; the others learn that it did."""
    try:
        mine = bool(store.add(f"{KEY}/count", 1) == 1)
        if mine:
            store.set(KEY, str(code))
    except RuntimeError:  # the store went with its owner
        return False
    return mine


def watch(store: Store) -> None:
    """Ends this process when another has failed, wherever it waits: a collective that nobody joins ends never."""

    def look() -> None:
        while True:
            time.sleep(LOOK)
            try:
                failed = store.check([KEY])
            except RuntimeError:  # the store is gone: whoever kept it has ended
                return
            if failed:
                time.sleep(LOOK)  # who is about to end by itself may do so
                os._exit(int(store.get(KEY)))

    threading.Thread(target=look, name="onefold-watch", daemon=True).start()
