"""How the kernels are compiled."""

from __future__ import annotations

from typing import Any

import triton

# Sizes of the data are arguments: a kernel is compiled once for all of them.
jit: Any = triton.jit(do_not_specialize=["rows", "chunk", "splits", "members", "count"])
