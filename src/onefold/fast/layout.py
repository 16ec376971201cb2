"""How activations lie in memory: `[M * B, C, ...]` with the channels innermost, which kernels see as `[M, rows, C]`.

The members lie one after another; a member's rows are the pixels of its images.
"""

from __future__ import annotations

import torch
from torch import Tensor


def innermost_channels(x: Tensor) -> Tensor:
    """The same values with the channels innermost in memory."""
    if x.dim() == 2:
        return x.contiguous()
    if x.dim() == 4:
        return x.contiguous(memory_format=torch.channels_last)
    return x.movedim(1, -1).contiguous().movedim(-1, 1)


def innermost_empty(like: Tensor, shape: torch.Size) -> Tensor:
    """Stands in for a tensor of which only shape and layout are needed."""
    order = [0, *range(2, len(shape)), 1]
    return like.new_empty([shape[k] for k in order]).movedim(-1, 1)


def by_member(x: Tensor, members: int) -> Tensor:
    """`[M, rows, C]`."""
    return x.movedim(1, -1).reshape(members, -1, x.shape[1])


def like(rows: Tensor, x: Tensor) -> Tensor:
    """`[M, rows, C]` in the shape, the type and the layout of x."""
    return torch.empty_like(x).copy_(rows.reshape(x.shape[0], *x.shape[2:], x.shape[1]).movedim(-1, 1))


def laid_out_as(weight: Tensor, dw: Tensor) -> Tensor:
    """The same gradient, with the weight's strides where they differ in name only: a size of one may have any."""
    sizes = zip(weight.shape, weight.stride(), dw.stride(), strict=True)
    same = all(size == 1 or own == other for size, own, other in sizes)
    return dw.as_strided(dw.shape, weight.stride()) if same else dw
