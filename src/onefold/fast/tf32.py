"""Whether float32 products on a GPU use TF32."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch


@contextlib.contextmanager
def tf32(enabled: bool) -> Iterator[None]:
    """Inside, allows or forbids TF32 for float32 matrix products and convolutions.

    torch has two APIs for this, and raises an error if a setting made with one is read with the other.
    """
    matmul: Any = torch.backends.cuda.matmul
    cudnn: Any = torch.backends.cudnn
    cpu: Any = torch.backends.mkldnn
    parts = matmul, cudnn.conv, cudnn.rnn, cpu.matmul
    before = [part.fp32_precision for part in parts]
    try:
        old = torch.get_float32_matmul_precision(), cudnn.allow_tf32
    except RuntimeError:
        old = None
        matmul.fp32_precision = cudnn.conv.fp32_precision = "tf32" if enabled else "ieee"
    else:  # this one knows "medium", too, which `allow_tf32` would forget
        torch.set_float32_matmul_precision("high" if enabled else "highest")
        cudnn.allow_tf32 = enabled
    try:
        yield
    finally:
        if old is not None:
            torch.set_float32_matmul_precision(old[0])
            cudnn.allow_tf32 = old[1]
        for part, stood in zip(parts, before, strict=True):
            if part.fp32_precision != stood:
                part.fp32_precision = stood
