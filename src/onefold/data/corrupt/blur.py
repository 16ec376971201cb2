"""Blurs by a fixed kernel: Gaussian, defocus, zoom."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from onefold.data.corrupt.draws import Draws
from onefold.data.corrupt.linear import gaussian_weights, padded, smoothed, to_bytes, zoom_matrix


def gaussian_blur(x: Tensor, draws: Draws, deviation: float) -> Tensor:  # noqa: ARG001
    """A Gaussian, cut off at four standard deviations; the edge pixels are repeated beyond the border."""
    return to_bytes(smoothed(x, deviation))


def defocus_blur(x: Tensor, draws: Draws, radius: float, alias_blur: float) -> Tensor:  # noqa: ARG001
    """A disk with a smoothed edge; beyond the border the image is mirrored at its last pixel."""
    kernel = disk(radius, alias_blur)
    pad, (height, width) = len(kernel) // 2, x.shape[-2:]
    wide = padded(x, pad, "mirror").float()
    blurred = torch.zeros(x.shape, device=x.device)
    # Tap by tap: a single-channel convolution is no faster, and might use TF32.
    for top, row in enumerate(kernel.tolist()):
        for left, weight in enumerate(row):
            if weight:
                blurred.add_(wide[..., top : top + height, left : left + width], alpha=weight)
    return to_bytes(blurred)


@lru_cache(maxsize=32)
def disk(radius: float, alias_blur: float) -> Tensor:
    """`[k, k]` with sum one: the pixels within the radius, smoothed by 3 x 3 taps (5 x 5 if the radius exceeds 8)."""
    reach, smoothing = (8, 1) if radius <= 8 else (int(radius), 2)
    places = torch.arange(-reach, reach + 1, dtype=torch.float64)
    inside = (places[:, None] ** 2 + places**2 <= radius**2).double()
    taps = gaussian_weights(alias_blur, smoothing)
    wide = padded(inside / inside.sum(), smoothing, "mirror")
    kernel = F.conv2d(wide[None, None], torch.outer(taps, taps)[None, None])[0, 0]
    empty = 0
    while empty < reach and not kernel[empty].any():  # trim borders of zeros, which only cost time
        empty += 1
    return kernel[empty : len(kernel) - empty, empty : len(kernel) - empty]


def zoom_blur(x: Tensor, draws: Draws, end: float, step: float) -> Tensor:  # noqa: ARG001
    """The mean of the image and of its centre zoomed by 1, 1 + step, ...: sum_z R_z x C_z^T."""
    height, width = x.shape[-2:]
    rows, columns = zooms(height, width, end, step)
    count = columns.shape[0] // width
    stretched = (x.double() @ columns.to(x.device).mT).unflatten(-1, (count, width))  # [B, C, H, Z, W]
    return to_bytes(rows.to(x.device) @ stretched.transpose(2, 3).flatten(2, 3))


@lru_cache(maxsize=16)
def zooms(height: int, width: int, end: float, step: float) -> tuple[Tensor, Tensor]:
    """All zooms side by side, `[H, Z H]` including their weights, and `[Z W, W]`. Equal ones, like the first few of
    small images, are merged."""
    factors = [1.0, *np.arange(1, end, step).tolist()]  # as in the benchmark, including how arange rounds the end
    joined: dict[bytes, tuple[float, Tensor, Tensor]] = {}
    for factor in factors:
        row, column = zoom_matrix(height, factor), zoom_matrix(width, factor)
        key = row.numpy().tobytes() + column.numpy().tobytes()
        weight = joined[key][0] if key in joined else 0.0
        joined[key] = (weight + 1 / len(factors), row, column)
    rows = torch.cat([weight * row for weight, row, _ in joined.values()], dim=1)
    return rows, torch.cat([column for _, _, column in joined.values()])
