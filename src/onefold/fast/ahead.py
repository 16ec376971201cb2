"""Kernels compiled before they run, side by side: one after the other they are most of a start-up.

Whoever is about to compute something for the first time computes it once before. In that pass no kernel runs: each is
only asked for, and threads compile it, while the descriptions in torch stand in for it. So the numbers of that pass
are right too, but for rounding: nothing that looks at them is led astray.
"""

from __future__ import annotations

import contextlib
import contextvars
import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import torch

LOG = logging.getLogger(__name__)
THREADS, NAME = 16, "compile"  # so many at most, and what they are called
# Contexts in which Triton takes requests, innermost last. Not a ContextVar: a backward pass has a thread of its own.
ASKED: list[contextvars.Context] = []


def only_asked() -> bool:
    """Whether kernels are asked for and do not run."""
    return bool(ASKED)


class Loaded(Executor):
    """Threads that load what they have compiled: some versions of Triton compile a launcher then."""

    def __init__(self, threads: Executor) -> None:
        self.threads, self.alone = threads, threading.Lock()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        def loaded() -> Any:
            kernel = fn(*args, **kwargs)
            kernel.run  # noqa: B018
            return kernel

        def twice() -> Any:
            """What goes wrong beside others, now and then, may go well alone."""
            try:
                return loaded()
            except Exception as error:
                cause = repr(error.__cause__ or error.__context__)  # Triton's own has the line, not the fault
                LOG.debug("a kernel was not compiled beside others: %s, from %s", repr(error), cause)
            with self.alone:
                return loaded()  # if not, when it is launched

        return self.threads.submit(twice)


def threads() -> ThreadPoolExecutor:
    """Each on the device of the thread that asks."""
    count = min(THREADS, len(os.sched_getaffinity(0)))
    if not torch.cuda.is_available():
        return ThreadPoolExecutor(count, NAME)
    return ThreadPoolExecutor(count, NAME, torch.cuda.set_device, (torch.cuda.current_device(),))


def compile_ahead(compute: Callable[[], object]) -> None:
    """Computes once without the kernels that it asks for; they are ready afterwards.

    Where Triton cannot do that, nothing happens: a kernel is compiled when it is launched for the first time.
    """
    with contextlib.ExitStack() as stack:
        try:
            import triton

            workers = stack.enter_context(threads())
            stack.enter_context(triton.AsyncCompileMode(Loaded(workers), ignore_errors=True))
        except Exception:  # no Triton, an older one, or one that is at it already
            return
        ASKED.append(contextvars.copy_context())
        try:
            compute()
        finally:
            ASKED.pop()


def run(launch: Callable[..., Any], *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
    """Stands before a kernel's own `run`: launches it, or only asks for it."""
    if not ASKED:
        return launch(*args, grid=grid, warmup=warmup, **kwargs)
    try:
        ASKED[-1].copy().run(partial(launch, *args, grid=grid, warmup=True, **kwargs))
    except Exception as error:  # it will be compiled, or fail, when it is launched
        LOG.debug("a kernel was not asked for ahead: %s", repr(error))
    return None
