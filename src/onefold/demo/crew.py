"""Shares tasks between workers and watches them: one that dies or hangs is replaced, with a message."""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING

from onefold.demo.board import Board
from onefold.demo.tasks import Stage, Task
from onefold.demo.workers import in_process, in_thread
from onefold.engine import Interrupted
from onefold.engine.signals import interruptions

if TYPE_CHECKING:
    from onefold.demo.workers import Wire

LOOK = 0.2  # seconds between checks of the workers
STILL = 180.0  # seconds without a message after which a busy worker counts as hanging; a step takes 0.01 s
STARTING = 5  # times as long for a worker that is starting: importing torch from a cold disk is slow
PATIENCE = 20.0  # seconds that a worker has to save and end
TRIES = 3  # workers that may fail on a task


def run_tasks(tasks: Sequence[Task], workers: int, stage: Callable[[str], Stage]) -> None:
    """Runs all tasks, in a thread of this process and in further processes, with one CPU thread each.

    This process works too, because torch alone takes half a GB in each process. Raises `Interrupted` after a signal,
    and the error of a task that fails; progress is saved in any case.
    """
    board = Board(tasks)
    whole = stage("demo")
    crew: list[Worker] = []
    with interruptions(True) as wish:
        try:
            crew += [Worker(stage, in_this_process=number == 0) for number in range(workers)]
            while not board.finished and wish.signal is None:
                listen(crew, board)
                replace_lost(crew, board, stage, STILL)
                whole.count(*board.progress)
        finally:
            end(crew)
    if wish.signal is not None:
        raise Interrupted(
            f"stopped by {wish.signal.name}, with progress saved; run the same command again to resume",
            wish.signal,
        )


class Worker:
    """Our side of a worker: the connection to it, its task, and for how long it has been silent."""

    def __init__(self, stage: Callable[[str], Stage], in_this_process: bool) -> None:
        # Not a fork, which torch's threads do not survive.
        context = multiprocessing.get_context("spawn")
        self.wire: Wire
        self.wire, theirs = context.Pipe()
        self.shown = stage("worker")
        self.task: Task | None = None
        self.idle = False
        self.silent = 0.0  # seconds, not counting time in which this process was suspended too
        self.stop = threading.Event()
        self.process: BaseProcess | None = None
        if in_this_process:
            self.thread = threading.Thread(target=in_thread, args=(theirs, self.stop), daemon=True)
            self.thread.start()
        else:
            self.process = context.Process(target=in_process, args=(theirs, os.getpid()), daemon=True)
            # Blocked in the process: what a terminal sends to all of them is handled only here, and passed on.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
            self.process.start()
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()  # now only the process has that end, so that the connection breaks when it dies

    def hand(self, task: Task) -> None:
        self.task, self.idle, self.silent = task, False, 0.0
        self.shown.title(task.title)
        try:
            self.wire.send(task)
        except OSError:  # it died while it had nothing to do
            self.wire.close()

    def standing(self, still: float) -> bool:
        return not self.idle and self.silent > (STARTING * still if self.task is None else still)

    def give_up(self) -> None:
        """Makes a hanging worker print where it hangs, and kills it."""
        if self.process is None or self.process.pid is None:
            faulthandler.dump_traceback(sys.__stderr__ or sys.stderr)
            raise RuntimeError(f"{self.doing} hangs; --debug and the lines above show where")
        os.kill(self.process.pid, signal.SIGUSR1)
        self.process.join(1.0)
        self.process.kill()
        self.process.join(PATIENCE)

    @property
    def doing(self) -> str:
        return "a starting worker" if self.task is None else self.task.title

    @property
    def fate(self) -> str:
        """How a process ended."""
        if self.process is None:
            return "its thread ended"
        self.process.join(PATIENCE)
        code = self.process.exitcode
        return f"killed by {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"


def listen(crew: list[Worker], board: Board) -> None:
    """Waits a moment for messages from workers, handles them, and hands out the next tasks."""
    by_wire = {worker.wire: worker for worker in crew if not worker.wire.closed}
    begin = time.monotonic()
    spoken = wait(list(by_wire), timeout=LOOK)
    for worker in crew:
        worker.silent += min(time.monotonic() - begin, 2 * LOOK)
    for wire in spoken:
        worker = by_wire[wire]  # type: ignore[index]
        try:
            what, arguments = worker.wire.recv()
        except (EOFError, OSError):
            worker.wire.close()  # the worker is gone
            continue
        worker.silent = 0.0
        if what == "failed":
            raise arguments[0]
        if what == "update":
            assert worker.task is not None
            worker.shown.update(*arguments)
            board.reached(worker.task, arguments[0] / arguments[1])
            continue
        if what == "note":
            whose = " (flags of onefold distill)" if "--" in arguments[0] else ""  # which the demo does not have
            worker.shown.message(f"{worker.doing}: {arguments[0]}{whose}")
            continue
        worker.idle = True
        if what == "done" and worker.task is not None:
            board.done(worker.task)
            worker.task = None
    for worker in crew:
        if worker.idle and not worker.wire.closed and (task := board.next()) is not None:
            worker.hand(task)


def replace_lost(crew: list[Worker], board: Board, stage: Callable[[str], Stage], still: float) -> None:
    """Replaces workers that died or hang; their tasks resume from the last checkpoint."""
    for number, worker in enumerate(crew):
        standing = worker.standing(still)
        if standing:
            worker.give_up()
        if not standing and not worker.wire.closed:
            continue
        reason = "hung" if standing else f"died ({worker.fate})"
        tries = board.give_back(worker.task)
        if tries >= TRIES:
            raise RuntimeError(
                f"{worker.doing}: the worker {reason}, after {tries - 1} before it had failed; is there enough memory? "
                "--workers 1 needs the least"
            )
        worker.shown.message(f"{worker.doing}: the worker {reason}; another one resumes from the last checkpoint")
        worker.wire.close()
        crew[number] = Worker(stage, in_this_process=False)


def end(crew: Sequence[Worker]) -> None:
    """Ends every worker: at once if it has nothing to do, else after it has saved. None is left behind."""
    for worker in crew:
        worker.stop.set()
        if worker.process is None:
            worker.wire.close()  # wakes up an idle thread
        elif worker.idle and not worker.wire.closed:
            with contextlib.suppress(OSError):
                worker.wire.send(None)
        elif worker.task is None:
            worker.process.kill()  # it is still starting and has nothing to save
        elif worker.process.pid is not None and worker.process.is_alive():
            os.kill(worker.process.pid, signal.SIGTERM)
    until = time.monotonic() + PATIENCE
    for worker in crew:
        (worker.thread if worker.process is None else worker.process).join(max(0.0, until - time.monotonic()))
        worker.wire.close()  # not earlier: messages it sends while saving must not fail
        if worker.process is not None and worker.process.is_alive():
            worker.process.kill()
            worker.process.join()
