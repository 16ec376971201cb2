"""Compiles kernels in parallel before they run: compiled one by one, they would be most of the start-up time.

What is about to be computed for the first time is computed once in advance. In that pass no kernel is launched: each is
only requested, threads compile it, and its description in torch computes the result instead. So the values of that pass
are right, too, up to rounding, and code that depends on them is not misled.
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
THREADS, NAME = 16, "compile"  # the most threads, and the prefix of their names
# Contexts in which Triton takes requests, innermost last. Not a ContextVar: a backward pass runs in another thread.
ASKED: list[contextvars.Context] = []


def only_asked() -> bool:
    """Whether kernels are being requested for compilation rather than launched."""
    return bool(ASKED)


class Loaded(Executor):
    """Compiles in threads and also loads each kernel there, since some versions of Triton compile its launcher then."""

    def __init__(self, threads: Executor) -> None:
        self.threads, self.alone = threads, threading.Lock()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        def loaded() -> Any:
            kernel = fn(*args, **kwargs)
            kernel.run  # noqa: B018
            return kernel

        def twice() -> Any:
            """Compiling in parallel occasionally fails, and may succeed in a second, serialized attempt."""
            try:
                return loaded()
            except Exception as error:
                cause = repr(error.__cause__ or error.__context__)  # Triton's own error names the line, not the fault
                LOG.debug("a kernel was not compiled beside others: %s, from %s", repr(error), cause)
            with self.alone:
                return loaded()  # if this fails too, it is compiled at its first launch

        return self.threads.submit(twice)


def threads() -> ThreadPoolExecutor:
    """A thread pool whose threads use the calling thread's CUDA device."""
    count = min(THREADS, len(os.sched_getaffinity(0)))
    if not torch.cuda.is_available():
        return ThreadPoolExecutor(count, NAME)
    return ThreadPoolExecutor(count, NAME, torch.cuda.set_device, (torch.cuda.current_device(),))


def compile_ahead(compute: Callable[[], object]) -> None:
    """Runs `compute` once to request its kernels, without launching them; afterwards they are compiled.

    If Triton does not support this, it does nothing: kernels are then compiled when they are first launched.
    """
    with contextlib.ExitStack() as stack:
        try:
            import triton

            workers = stack.enter_context(threads())
            stack.enter_context(triton.AsyncCompileMode(Loaded(workers), ignore_errors=True))
        except Exception:  # no Triton, too old a version, or already compiling ahead
            return
        ASKED.append(contextvars.copy_context())
        try:
            compute()
        finally:
            ASKED.pop()


def run(launch: Callable[..., Any], *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
    """Wraps a kernel's own `run`: launches the kernel, or only requests its compilation."""
    if not ASKED:
        return launch(*args, grid=grid, warmup=warmup, **kwargs)
    try:
        ASKED[-1].copy().run(partial(launch, *args, grid=grid, warmup=True, **kwargs))
    except Exception as error:  # it will be compiled, or fail, at its first launch
        LOG.debug("a kernel was not asked for ahead: %s", repr(error))
    return None
