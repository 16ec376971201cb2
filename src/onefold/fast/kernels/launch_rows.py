"""The passes of `fast/rows.py` as kernel launches."""

from __future__ import annotations

import torch
from torch import Tensor

from onefold.fast.kernels.grid import power_of_two
from onefold.fast.kernels.rows import normalized_gradient_kernel, normalized_kernel

TILE = 2048  # elements a program of 128 threads holds at once
SUMMED = 1024  # the same in the backward pass, which also sums
PROGRAMS = 528  # programs of a pass that sums: four for each SM of an H100 or H200


def sizes_of(channels: int, tile: int) -> dict[str, int]:
    width = power_of_two(channels)
    return {"ROWS": max(1, tile // width), "CHANNELS": width, "num_warps": 4 if width <= tile else 8}


def normalized(
    y: Tensor, x: Tensor | None, weight: Tensor | None, bias: Tensor | None, eps: float, kind: torch.dtype
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    (rows, channels), sizes = y.shape, sizes_of(y.shape[1], TILE)
    total = y if x is None else torch.empty_like(y, dtype=torch.promote_types(y.dtype, x.dtype))
    z, (mean, rstd) = torch.empty_like(y, dtype=kind), y.new_empty((2, rows), dtype=torch.float32)
    flags = {"SUM": x is not None, "AFFINE": weight is not None}
    programs = (-(-rows // sizes["ROWS"]),)
    normalized_kernel[programs](y, x, weight, bias, total, z, mean, rstd, rows, channels, eps, **flags, **sizes)
    return total, z, mean, rstd


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
    (rows, channels), sizes = total.shape, sizes_of(total.shape[1], SUMMED)
    tiles = -(-rows // sizes["ROWS"])
    chunk = max(1, -(-tiles // PROGRAMS)) * sizes["ROWS"]
    programs = -(-rows // chunk)
    dt = torch.empty_like(total)
    copy = None if lower is None else torch.empty_like(total, dtype=lower)
    partial = total.new_empty((programs, 2, channels), dtype=torch.float32) if learns else None
    flags = {"AFFINE": weight is not None, "ALSO": also is not None, "COPY": copy is not None, "LEARNS": learns}
    tensors = (dz, total, weight, mean, rstd, also, dt, copy, partial)
    normalized_gradient_kernel[(programs,)](*tensors, rows, channels, chunk, **flags, **sizes)
    dgamma, dbeta = (None, None) if partial is None else partial.sum(0)
    return dt, copy, dgamma, dbeta
