"""What happens to the others when a process ends early: they end too, and only one speaks."""

from __future__ import annotations

import atexit
import os
import re
import threading

import torch.distributed as dist
from torch.distributed.distributed_c10d import Store

KEY = "onefold/failed"
LOOK = 0.5  # seconds
PATIENCE = 5.0  # with a store that does not answer
# gloo raises plain RuntimeErrors that begin with the place in its source: [.../gloo/transport/tcp/pair.cc:561] ...
# One that begins with "[enforce fail at" is about what it was asked to do.
GLOO = re.compile(r"\[\S*gloo\S*:\d+\] |Connection (closed|reset) by peer|Broken pipe")


class Lost(RuntimeError):
    """Another process has ended, by itself or by somebody's hand."""


class Abandoned(RuntimeError):
    """The first process has refused to go on, and says why itself."""


def tells_of_others(error: RuntimeError) -> bool:
    """Whether an error of a collective is about the way to the other processes: NCCL's, the store's, or gloo's."""
    return isinstance(error, dist.DistError) or GLOO.search(str(error)) is not None


def claim(store: Store, code: int, end_others: bool = True) -> bool:
    """Whether this process is the first to end early, and so the one that says why; the others are told to end."""
    try:
        mine = bool(store.add(f"{KEY}/count", 1) == 1)
        if mine and end_others:
            store.set(KEY, str(code))
    except RuntimeError:  # the store went with its owner
        return False
    return mine


def failed(store: Store) -> bool:
    return bool(store.check([KEY]))


def watch(store: Store) -> None:
    """Ends this process when another has failed, wherever it waits: a collective that nobody joins ends never.

    Before this process ends by itself the watch does: Python aborts who comes back from a store when it is over.
    """
    over = threading.Event()

    def look() -> None:
        try:
            while not failed(store):
                if over.wait(LOOK):
                    return
            if over.wait(LOOK):  # who is about to end by itself may do so
                return
            code = int(store.get(KEY))
        except RuntimeError:  # the store is gone, and with it whoever kept it
            return
        os._exit(code)

    watching = threading.Thread(target=look, name="onefold-watch", daemon=True)

    def rest() -> None:
        over.set()
        watching.join(PATIENCE)

    watching.start()
    atexit.register(rest)
