"""How the kernels are compiled and launched."""

from __future__ import annotations

import ctypes
from functools import cache, partial
from typing import Any

import torch
import triton
import triton.language as tl

from onefold.fast import ahead

# Data sizes are not specialized on, so that a kernel is compiled only once for all of them.
SIZES = ["rows", "chunk", "splits", "members", "count", "pixels", "programs"]
# Factors are not specialized on alignment: each program reads them only once, and a picked member's may start anywhere.
FACTORS = ["q", "s", "r"]
CAPTURED_SINCE = 12_030  # the first CUDA driver version that can capture programmatic dependent launches
COMPILED = tl.constexpr(not triton.knobs.runtime.interpret)  # Triton's interpreter has no gdc_wait


def jit(function: Any) -> Any:
    """Declares a kernel, or a function that kernels call. In `compile_ahead` a kernel is requested, not launched."""
    kernel: Any = triton.jit(function, do_not_specialize=SIZES, do_not_specialize_on_alignment=FACTORS)
    if isinstance(kernel, triton.JITFunction):  # Triton's interpreter compiles nothing
        kernel.run = partial(ahead.run, partial(launched, kernel.run))
    return kernel


def launched(launch: Any, *args: Any, **kwargs: Any) -> Any:
    """Launches a kernel; if the device can, with programmatic dependent launch: it is loaded while the previous kernel
    finishes, and waits there."""
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
    except OSError:  # the library has another name on this system
        return False
    return version.value >= CAPTURED_SINCE


@jit
def wait_for_inputs():
    """Every kernel starts with this: afterwards all previous launches have ended and what they stored can be read."""
    if COMPILED and tl.target_info.cuda_capability_geq(9, 0):
        tl.extra.cuda.gdc_wait()
