"""The passes of a LayerNorm over `[rows, C]` in torch: they run on a CPU, and are the reference for the kernels."""

from __future__ import annotations

import torch
from torch import Tensor

from onefold.fast.passes import kernels_of
from onefold.types import at_least_float32

by_kernels = kernels_of("launch_rows")


@by_kernels
def normalized(
    y: Tensor, x: Tensor | None, weight: Tensor | None, bias: Tensor | None, eps: float, kind: torch.dtype
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """t = y + x, or y itself; its LayerNorm in dtype `kind`; mean and 1/sigma `[rows]`."""
    total = y if x is None else y + x
    values = at_least_float32(total)
    var, mean = torch.var_mean(values, dim=1, correction=0)
    rstd = (var + eps).rsqrt()
    z = (values - mean[:, None]) * rstd[:, None]
    z = z if weight is None or bias is None else z * weight + bias
    return total, z.to(kind), mean, rstd


@by_kernels
def normalized_gradient(
    dz: Tensor,
    total: Tensor,
    weight: Tensor | None,
    mean: Tensor,
    rstd: Tensor,
    also: Tensor | None,
    lower: torch.dtype | None,
    learns: bool,
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """The gradient of t, a copy of it in dtype `lower` if given, and the gradients of gamma and beta if `learns`."""
    g = at_least_float32(dz)
    n = (at_least_float32(total) - mean[:, None]) * rstd[:, None]
    h = g if weight is None else g * weight
    dt = (h - h.mean(1, keepdim=True) - n * (h * n).mean(1, keepdim=True)) * rstd[:, None]
    dt = dt if also is None else dt + also
    copy = None if lower is None else dt.to(lower)
    return dt.to(total.dtype), copy, (g * n).sum(0) if learns else None, g.sum(0) if learns else None
