"""A worker: trains the tasks it is given, one after the other, in its own process or in a thread of this one."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import threading
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import torch

from onefold.demo.tasks import source_of
from onefold.engine import Interrupted
from onefold.metrics.threads import one_thread

if TYPE_CHECKING:
    Wire = Connection[Any, Any]  # generic for type checkers only


def in_process(wire: Wire, parent: int) -> None:
    """The target of a process. SIGTERM makes it save and stop, SIGUSR1 makes it print its stack."""
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # in effect between tasks

    def listened() -> None:
        if os.getppid() != parent:  # the parent is gone
            os.kill(os.getpid(), signal.SIGTERM)

    torch.set_num_threads(1)
    with contextlib.suppress(Interrupted, KeyboardInterrupt, EOFError, BrokenPipeError):
        serve(wire, listened)


def in_thread(wire: Wire, stop: threading.Event) -> None:
    """The target of a thread, which gets no signals: `stop` makes it abandon the task, at its last checkpoint."""

    def listened() -> None:
        if stop.is_set():
            raise Interrupted("stopped", signal.SIGTERM)

    # Closes the connection in any case, which tells the other side that the worker has ended.
    with wire, one_thread(), contextlib.suppress(Interrupted, EOFError, BrokenPipeError):
        serve(wire, listened)


def serve(wire: Wire, listened: Callable[[], None]) -> None:
    """Sends "ready", then "done" after each task; or "failed", with the error, if a task was refused or crashed."""
    wire.send(("ready", ()))
    while (task := wire.recv()) is not None:
        try:
            task.train(source_of(task.recipe), Told(wire, listened))
        except Interrupted:
            raise
        except Exception as error:
            refused = isinstance(error, ValueError | OSError)
            wire.send(("failed", (ValueError(str(error)) if refused else RuntimeError(traceback.format_exc()),)))
            return
        wire.send(("done", ()))


class Told:
    """Progress that is sent through the connection, to be shown at the other end."""

    def __init__(self, wire: Wire, listened: Callable[[], None]) -> None:
        self.wire, self.listened = wire, listened

    def update(self, done: int, total: int, loss: float, lr: float, rate: float) -> None:
        self.listened()
        self.wire.send(("update", (done, total, loss, lr, rate)))

    def message(self, text: str) -> None:
        """Not sent: the title says what the task is."""

    def note(self, text: str) -> None:
        """Sends a note about a possible mistake or a poor result."""
        self.listened()
        self.wire.send(("note", (text,)))
