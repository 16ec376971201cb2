"""The repetitions shared between processes, each of them with one thread."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import queue
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from onefold.demo.seed import Stage, run_seed
from onefold.engine import Interrupted
from onefold.engine.signals import interruptions
from onefold.recipe import Recipe

Job = tuple[Recipe, Path]
LOOK = 0.2  # seconds


def run_seeds(jobs: Sequence[Job], workers: int, stage: Callable[[str], Stage]) -> None:
    """Every job, in this process or in several. Stops with `Interrupted` on a signal, everything saved."""
    if workers == 1:
        with one_thread():
            for recipe, folder in jobs:
                run_seed(recipe, folder, stage(f"seed {recipe.seed}"))
        return
    # Not a fork: threads of torch do not survive one.
    context = multiprocessing.get_context("spawn")
    told: multiprocessing.Queue[tuple[int, str, tuple[Any, ...]]] = context.Queue()
    processes = [context.Process(target=work, args=(jobs[w::workers], told, os.getpid())) for w in range(workers)]
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
    told: multiprocessing.Queue[tuple[int, str, tuple[Any, ...]]],
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
            seed, what, arguments = told.get(timeout=LOOK)
        except queue.Empty:
            if not alive:
                break
            continue
        if what == "failed":
            failure = failure or arguments[0]
            continue
        if seed not in stages:
            stages[seed] = stage(f"seed {seed}")
        getattr(stages[seed], what)(*arguments)
    if wished() is None and (failure is not None or died(processes)):
        raise failure or RuntimeError("a worker process died; is there enough memory? --workers 1 needs least")


def died(processes: Sequence[BaseProcess]) -> bool:
    return any(process.exitcode not in (None, 0) for process in processes)


def work(
    jobs: Sequence[Job], told: multiprocessing.Queue[tuple[int, str, tuple[Any, ...]]], parent: int
) -> None:  # pragma: no cover -- runs in another process
    """What a worker does."""
    os.setsid()  # Ctrl-C in the terminal reaches the parent alone, which passes it on once
    torch.set_num_threads(1)
    seed = -1
    try:
        for recipe, folder in jobs:
            seed = recipe.seed
            run_seed(recipe, folder, Told(told, seed, parent))
    except Interrupted:
        pass
    except Exception as error:
        refused = isinstance(error, ValueError | OSError)
        told.put((seed, "failed", (ValueError(str(error)) if refused else RuntimeError(traceback.format_exc()),)))


class Told:
    """Progress that the parent shows."""

    def __init__(self, told: multiprocessing.Queue[tuple[int, str, tuple[Any, ...]]], seed: int, parent: int) -> None:
        self.told, self.seed, self.parent = told, seed, parent

    def title(self, text: str) -> None:
        self.told.put((self.seed, "title", (text,)))

    def update(self, done: int, total: int, loss: float, lr: float, rate: float) -> None:
        if os.getppid() != self.parent:  # nobody is left to listen
            os.kill(os.getpid(), signal.SIGTERM)
        self.told.put((self.seed, "update", (done, total, loss, lr, rate)))

    def message(self, text: str) -> None:
        self.told.put((self.seed, "message", (text,)))


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """As in a worker, so that sums are formed in the same order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
