"""The tasks shared between workers, which are watched: one that dies or stands still is replaced, and that is said."""

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

LOOK = 0.2  # seconds between two looks at the workers
STILL = 180.0  # seconds without a word of a worker that has something to do; a step takes a hundredth of one
STARTING = 5  # times as long for one that starts: torch on a cold disk
PATIENCE = 20.0  # seconds to save and end in
TRIES = 3  # workers that a task may wear out


def run_tasks(tasks: Sequence[Task], workers: int, stage: Callable[[str], Stage]) -> None:
    """Every task, by a thread of this process and processes beside it, one CPU thread each.

    This process works too, because torch alone takes half a GB in each. Stops with `Interrupted` on a signal, and with
    the error of a task that fails; what was reached is saved in any case.
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
            f"stopped by {wish.signal.name}; what was reached is saved, and the same command goes on from there",
            wish.signal,
        )


class Worker:
    """This side of a worker: the wire to it, its task, and for how long it has been silent."""

    def __init__(self, stage: Callable[[str], Stage], in_this_process: bool) -> None:
        # Not a fork: threads of torch do not survive one.
        context = multiprocessing.get_context("spawn")
        self.wire: Wire
        self.wire, theirs = context.Pipe()
        self.shown = stage("worker")
        self.task: Task | None = None
        self.idle = False
        self.silent = 0.0  # seconds, as counted while this process ran itself: a suspended machine is nobody's fault
        self.stop = threading.Event()
        self.process: BaseProcess | None = None
        if in_this_process:
            self.thread = threading.Thread(target=in_thread, args=(theirs, self.stop), daemon=True)
            self.thread.start()
        else:
            self.process = context.Process(target=in_process, args=(theirs, os.getpid()), daemon=True)
            # SIGINT stays blocked in the process: Ctrl-C in a terminal reaches this one alone, which passes it on.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            self.process.start()
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()  # theirs alone now: when they are gone, the wire says so

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
        """Lets a worker that stands still say where, and ends it."""
        if self.process is None or self.process.pid is None:
            faulthandler.dump_traceback(sys.__stderr__ or sys.stderr)
            raise RuntimeError(f"{self.doing} stands still; --debug and the lines above show where")
        os.kill(self.process.pid, signal.SIGUSR1)
        self.process.join(1.0)
        self.process.kill()
        self.process.join(PATIENCE)

    @property
    def doing(self) -> str:
        return "a worker that starts" if self.task is None else self.task.title

    @property
    def fate(self) -> str:
        """How a process ended."""
        if self.process is None:
            return "its thread ended"
        self.process.join(PATIENCE)
        code = self.process.exitcode
        return f"killed by {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"


def listen(crew: list[Worker], board: Board) -> None:
    """Waits a moment for words of the workers, shows them, and hands out what is to be done next."""
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
            worker.wire.close()  # it is gone
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
            whose = " (flags of onefold distill)" if "--" in arguments[0] else ""  # the demo has none of them
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
    """Puts another worker in the place of one that died or stands still; its task goes on from the last checkpoint."""
    for number, worker in enumerate(crew):
        standing = worker.standing(still)
        if standing:
            worker.give_up()
        if not standing and not worker.wire.closed:
            continue
        reason = "stood still" if standing else f"died ({worker.fate})"
        tries = board.give_back(worker.task)
        if tries >= TRIES:
            raise RuntimeError(
                f"{worker.doing}: the worker {reason}, and so did {tries - 1} before it; is there enough memory? "
                "--workers 1 needs least"
            )
        worker.shown.message(f"{worker.doing}: the worker {reason}; another one goes on from the last checkpoint")
        worker.wire.close()
        crew[number] = Worker(stage, in_this_process=False)


def end(crew: Sequence[Worker]) -> None:
    """Ends every worker, none is left behind: at once where it has nothing to do, else when it has saved."""
    for worker in crew:
        worker.stop.set()
        if worker.process is None:
            worker.wire.close()  # this is what an idle thread waits for
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
        worker.wire.close()  # not before: what it says while it saves must not fail
        if worker.process is not None and worker.process.is_alive():
            worker.process.kill()
            worker.process.join()
