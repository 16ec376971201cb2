"""The memory format of activations: `[M * B, C, ...]` in channels-last, which kernels see as `[M, rows, C]`.

The members follow one another in the batch; a member's rows are the pixels of its images.
"""

from __future__ import annotations

import torch
from torch import Tensor


def innermost_channels(x: Tensor) -> Tensor:
    """The same values in channels-last, for any number of dimensions."""
    if x.dim() == 2:
        return x.contiguous()
    if x.dim() == 4:
        return x.contiguous(memory_format=torch.channels_last)
    return x.movedim(1, -1).contiguous().movedim(-1, 1)


def innermost_empty(like: Tensor, shape: torch.Size) -> Tensor:
    """An uninitialized channels-last tensor, for operations that need only its shape and memory format."""
    order = [0, *range(2, len(shape)), 1]
    return like.new_empty([shape[k] for k in order]).movedim(-1, 1)


def by_member(x: Tensor, members: int) -> Tensor:
    """Activations `[M * B, C, ...]` as `[M, rows, C]`."""
    return x.movedim(1, -1).reshape(members, -1, x.shape[1])


def like(rows: Tensor, x: Tensor) -> Tensor:
    """`[M, rows, C]` in the shape, dtype and memory format of x."""
    return torch.empty_like(x).copy_(rows.reshape(x.shape[0], *x.shape[2:], x.shape[1]).movedim(-1, 1))


def laid_out_as(weight: Tensor, dw: Tensor) -> Tensor:
    """The gradient with the weight's strides, if they differ only in dimensions of size one, where strides are
    arbitrary; else unchanged."""
    sizes = zip(weight.shape, weight.stride(), dw.stride(), strict=True)
    same = all(size == 1 or own == other for size, own, other in sizes)
    return dw.as_strided(dw.shape, weight.stride()) if same else dw
