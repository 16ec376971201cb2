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
    parts: tuple[Any, ...] = (matmul, cudnn)
    name: str = "allow_tf32"
    value: bool | str = enabled
    try:
        before = [getattr(part, name) for part in parts]
    except RuntimeError:
        parts, name, value = (matmul, cudnn.conv), "fp32_precision", "tf32" if enabled else "ieee"
        before = [getattr(part, name) for part in parts]
    for part in parts:
        setattr(part, name, value)
    try:
        yield
    finally:
        for part, stood in zip(parts, before, strict=True):
            setattr(part, name, stood)
