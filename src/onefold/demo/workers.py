"""The tasks shared between processes of one thread each."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import queue
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.process import BaseProcess
from typing import Any, Protocol

import torch

from onefold.demo.tasks import Stage, Task, Whole, shared_out, source_of
from onefold.engine import Interrupted
from onefold.engine.signals import interruptions

LOOK = 0.2  # seconds


class Channel(Protocol):
    """What a queue between processes and one within a process have in common."""

    def put(self, item: tuple[int, str, tuple[Any, ...]]) -> None: ...

    def get(self, block: bool = True, timeout: float | None = None) -> tuple[int, str, tuple[Any, ...]]: ...


def run_tasks(teachers: Sequence[Task], students: Sequence[Task], workers: int, stage: Callable[[str], Stage]) -> None:
    """All teachers, then all students, in this process or in several.

    Stops with `Interrupted` on a signal, everything saved.
    """
    if workers == 1:
        whole = Whole(stage("demo"), [*teachers, *students])
        with one_thread():
            for task in (*teachers, *students):
                whole.run(task, source_of(task.recipe))
        return
    # Not a fork: threads of torch do not survive one.
    context = multiprocessing.get_context("spawn")
    told, together = context.Queue(), context.Barrier(workers)
    shares = zip(shared_out(teachers, workers), shared_out(students, workers), strict=True)
    processes = [
        context.Process(target=work, args=(number, *share, together, told, os.getpid()))
        for number, share in enumerate(shares)
    ]
    with interruptions(True) as wish:
        for process in processes:
            process.start()
        try:
            follow(processes, told, stage, lambda: wish.signal)
        finally:
            for process in processes:
                process.join()
    if wish.signal is not None:
        raise Interrupted(
            f"stopped by {wish.signal.name}; what was reached is saved, and the same command goes on from there",
            wish.signal,
        )


def follow(
    processes: Sequence[BaseProcess],
    told: Channel,
    stage: Callable[[str], Stage],
    wished: Callable[[], signal.Signals | None],
) -> None:
    """Shows what the workers tell until all have ended; passes a wish to stop on, once."""
    stages: dict[int, Stage] = {}
    failure: Exception | None = None
    stopping = False
    while True:
        # Looked at before the queue: what a worker said last is read before it counts as gone.
        alive = [process for process in processes if process.is_alive()]
        if not stopping and (wished() is not None or failure is not None or died(processes)):
            stopping = True
            for process in alive:
                if process.pid is not None:
                    os.kill(process.pid, wished() or signal.SIGTERM)
        try:
            number, what, arguments = told.get(timeout=LOOK)
        except queue.Empty:
            if not alive:
                break
            continue
        if what == "failed":
            failure = failure or arguments[0]
            continue
        if number not in stages:
            stages[number] = stage("demo")
        getattr(stages[number], what)(*arguments)
    if wished() is None and (failure is not None or died(processes)):
        raise failure or RuntimeError("a worker process died; is there enough memory? --workers 1 needs least")


def died(processes: Sequence[BaseProcess]) -> bool:
    return any(process.exitcode not in (None, 0) for process in processes)


def work(
    number: int,
    teachers: Sequence[Task],
    students: Sequence[Task],
    together: threading.Barrier,
    told: Channel,
    parent: int,
) -> None:
    """What a worker does: its teachers, and when those of all workers are there, its students."""
    os.setsid()  # Ctrl-C in the terminal reaches the parent alone, which passes it on once
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # between two tasks, as Ctrl-C
    torch.set_num_threads(1)
    whole = Whole(Told(told, number, parent), [*teachers, *students])
    try:
        for task in teachers:
            whole.run(task, source_of(task.recipe))
        together.wait()
        for task in students:
            whole.run(task, source_of(task.recipe))
    except (Interrupted, KeyboardInterrupt, threading.BrokenBarrierError):
        together.abort()
    except Exception as error:
        together.abort()
        refused = isinstance(error, ValueError | OSError)
        told.put((number, "failed", (ValueError(str(error)) if refused else RuntimeError(traceback.format_exc()),)))


class Told:
    """Progress that the parent shows."""

    def __init__(self, told: Channel, number: int, parent: int) -> None:
        self.told, self.number, self.parent = told, number, parent

    def title(self, text: str) -> None:
        self.told.put((self.number, "title", (text,)))

    def update(self, done: int, total: int, loss: float, lr: float, rate: float) -> None:
        if os.getppid() != self.parent:  # nobody is left to listen
            os.kill(os.getpid(), signal.SIGTERM)
        self.told.put((self.number, "update", (done, total, loss, lr, rate)))

    def message(self, text: str) -> None:
        self.told.put((self.number, "message", (text,)))


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """As in a worker, so that sums are formed in the same order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
