"""How the kernels are compiled, and launched."""

from __future__ import annotations

import ctypes
from functools import cache, partial
from typing import Any

import torch
import triton
import triton.language as tl

from onefold.fast import ahead

# Sizes of the data are arguments: a kernel is compiled once for all of them.
SIZES = ["rows", "chunk", "splits", "members", "count", "pixels", "programs"]
# Factors of members are read once by each program, so that it does not matter where those of a picked member begin.
FACTORS = ["q", "s", "r"]
CAPTURED_SINCE = 12_030  # the first CUDA that captures launches of this kind
COMPILED = tl.constexpr(not triton.knobs.runtime.interpret)  # the interpreter knows no waiting


def jit(function: Any) -> Any:
    """A kernel, or a function that kernels call. Inside of `compile_ahead` a kernel is asked for and does not run."""
    kernel: Any = triton.jit(function, do_not_specialize=SIZES, do_not_specialize_on_alignment=FACTORS)
    if isinstance(kernel, triton.JITFunction):  # Triton's interpreter compiles nothing
        kernel.run = partial(ahead.run, partial(launched, kernel.run))
    return kernel


def launched(launch: Any, *args: Any, **kwargs: Any) -> Any:
    """Where the device can, a kernel is brought in while the one before it ends, and waits there."""
    if torch.cuda.is_available() and comes_early(torch.cuda.current_device()):
        kwargs["launch_pdl"] = True
    return launch(*args, **kwargs)


@cache
def comes_early(device: int) -> bool:
    if torch.version.cuda is None or torch.cuda.get_device_capability(device) < (9, 0):
        return False
    version = ctypes.c_int()
    try:
        ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    except OSError:  # it has another name there
        return False
    return version.value >= CAPTURED_SINCE


@jit
def wait_for_inputs():
    """Every kernel begins with it: what was launched before has ended, and all it stored can be read."""
    if COMPILED and tl.target_info.cuda_capability_geq(9, 0):
        tl.extra.cuda.gdc_wait()
