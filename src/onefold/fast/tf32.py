"""How float32 products are rounded on a GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch


@contextlib.contextmanager
def tf32(enabled: bool) -> Iterator[None]:
    """Whether matrix products and convolutions of float32 may be TF32's inside.

    torch has two ways to ask for it, and whoever was asked in the one refuses to answer in the other.
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
