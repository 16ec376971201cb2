"""How the kernels are compiled."""

from __future__ import annotations

from functools import partial
from typing import Any

import triton

from onefold.fast import ahead

# Sizes of the data are arguments: a kernel is compiled once for all of them.
SIZES = ["rows", "chunk", "splits", "members", "count", "pixels", "programs"]
# Factors of members are read once by each program, so that it does not matter where those of a picked member begin.
FACTORS = ["q", "s", "r"]


def jit(function: Any) -> Any:
    """A kernel, or a function that kernels call. Inside of `compile_ahead` a kernel is asked for and does not run."""
    kernel: Any = triton.jit(function, do_not_specialize=SIZES, do_not_specialize_on_alignment=FACTORS)
    if isinstance(kernel, triton.JITFunction):  # Triton's interpreter compiles nothing
        kernel.run = partial(ahead.run, kernel.run)
    return kernel
