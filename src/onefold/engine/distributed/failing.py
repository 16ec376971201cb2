"""If a process ends early, the others end too, and only one reports why."""

from __future__ import annotations

import atexit
import os
import re
import threading

import torch.distributed as dist
from torch.distributed.distributed_c10d import Store

KEY = "onefold/failed"
LOOK = 0.5  # seconds between two polls of the store
PATIENCE = 5.0  # seconds to wait at exit for a store that does not answer
# gloo raises plain RuntimeErrors that begin with a source location: [.../gloo/transport/tcp/pair.cc:561] ...
# One that begins with "[enforce fail at" is about invalid arguments, not the connection.
GLOO = re.compile(r"\[\S*gloo\S*:\d+\] |Connection (closed|reset) by peer|Broken pipe")


class Lost(RuntimeError):
    """Another process has failed or was killed."""


class Abandoned(RuntimeError):
    """The first process has failed, and reports why itself."""


def tells_of_others(error: RuntimeError) -> bool:
    """Whether an error in a collective is about communication with the others (from NCCL, the store, or gloo)."""
    return isinstance(error, dist.DistError) or GLOO.search(str(error)) is not None


def claim(store: Store, code: int, end_others: bool = True) -> bool:
    """Whether this process is the first to fail, and so the one to report why; by default tells the others to end."""
    try:
        mine = bool(store.add(f"{KEY}/count", 1) == 1)
        if mine and end_others:
            store.set(KEY, str(code))
    except RuntimeError:  # the store is gone along with the process that hosted it
        return False
    return mine


def failed(store: Store) -> bool:
    return bool(store.check([KEY]))


def watch(store: Store) -> None:
    """Ends this process when another has failed, even if it is blocked: a collective that the others never join does
    not return.

    At exit the watching thread is stopped first: Python would abort the process if a thread returned from a store call
    during interpreter shutdown.
    """
    over = threading.Event()

    def look() -> None:
        try:
            while not failed(store):
                if over.wait(LOOK):
                    return
            if over.wait(LOOK):  # give this process a moment to end by itself
                return
            code = int(store.get(KEY))
        except RuntimeError:  # the store is gone along with the process that hosted it
            return
        os._exit(code)

    watching = threading.Thread(target=look, name="onefold-watch", daemon=True)

    def rest() -> None:
        over.set()
        watching.join(PATIENCE)

    watching.start()
    atexit.register(rest)
