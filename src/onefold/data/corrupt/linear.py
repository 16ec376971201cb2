"""Linear maps along rows and columns as matrices: smoothing, zooming, averaging, including border handling."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

# Pixels are truncated to integers, as in the benchmark. This keeps values that rounding puts just below an integer.
GUARD = 1e-3


def to_bytes(x: Tensor) -> Tensor:
    """Clips values on the scale of 0 to 255 and truncates them to uint8."""
    return (x + GUARD).clamp_(0, 255).to(torch.uint8)


def separable(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """`rows` applied to every column of x and `columns` to every row: rows x columns^T, in float64.

    Not in float32, because the program may have allowed TF32 for that, whose ten bits are too few for a pixel.
    """
    rows, columns = rows.to(x.device), columns.to(x.device)
    return torch.matmul(torch.matmul(rows, x.double()), columns.mT)


def reflected(places: Tensor, length: int, *, edge_twice: bool) -> Tensor:
    """Reflects indices beyond the ends into 0, ..., length - 1: b a | a b c with edge_twice, else c b | a b c."""
    if length == 1:
        return torch.zeros_like(places)
    period = 2 * length if edge_twice else 2 * length - 2
    folded = places % period
    return torch.where(folded < length, folded, period - folded - (1 if edge_twice else 0))


def padded(x: Tensor, pad: int, border: str) -> Tensor:
    """Adds `pad` rows and columns on each side, of any number; border is nearest (a a | a b) or mirror (c b | a b)."""
    for axis in (-2, -1):
        length = x.shape[axis]
        places = torch.arange(-pad, length + pad, device=x.device)
        inside = places.clamp(0, length - 1) if border == "nearest" else reflected(places, length, edge_twice=False)
        x = x.index_select(axis, inside)
    return x


def gaussian_weights(deviation: float, reach: int) -> Tensor:
    """A Gaussian at -reach, ..., reach, normalised to sum one."""
    places = torch.arange(-reach, reach + 1, dtype=torch.float64)
    weights = torch.exp(-0.5 * (places / deviation) ** 2) if reach else torch.ones(1, dtype=torch.float64)
    return weights / weights.sum()


@lru_cache(maxsize=64)
def gaussian_matrix(length: int, deviation: float, truncate: float = 4.0, edge_twice: bool = False) -> Tensor:
    """`[length, length]`: Gaussian smoothing, cut off at `truncate` deviations. Beyond the ends the last value is
    repeated, or, with edge_twice, the line is reflected including its last value."""
    reach = int(truncate * deviation + 0.5)
    places = torch.arange(length)[:, None] + torch.arange(-reach, reach + 1)  # [length, taps]
    inside = reflected(places, length, edge_twice=True) if edge_twice else places.clamp(0, length - 1)
    weights = gaussian_weights(deviation, reach).expand(length, -1)
    return torch.zeros(length, length, dtype=torch.float64).scatter_add_(1, inside, weights)


def smoothed(x: Tensor, deviation: float, truncate: float = 4.0, edge_twice: bool = False) -> Tensor:
    """Smooths x `[..., H, W]` with a Gaussian, in float64."""
    height, width = x.shape[-2:]
    rows = gaussian_matrix(height, deviation, truncate, edge_twice)
    return separable(x, rows, gaussian_matrix(width, deviation, truncate, edge_twice))


@lru_cache(maxsize=512)
def zoom_matrix(length: int, factor: float) -> Tensor:
    """`[length, length]`: stretches the middle 1 / factor of a line by the factor and keeps the middle of the result.
    Interpolates linearly, with the end points of the part on the end points of the stretched line."""
    part = math.ceil(length / factor)
    first = (length - part) // 2
    stretched = round(part * factor)
    places = torch.arange(stretched, dtype=torch.float64) * ((part - 1) / max(stretched - 1, 1))
    left = places.floor().clamp(0, max(part - 2, 0)).long()
    share = (places - left)[:, None]
    matrix = torch.zeros(stretched, length, dtype=torch.float64)
    matrix.scatter_add_(1, (first + left)[:, None], 1 - share)
    matrix.scatter_add_(1, (first + (left + 1).clamp(max=part - 1))[:, None], share)
    trim = (stretched - length) // 2
    return matrix[trim : trim + length]


@lru_cache(maxsize=64)
def box_matrix(length: int, target: int) -> Tensor:
    """`[target, length]`: Pillow's box filter for 8 bits, weights in units of 2^-22."""
    scale = length / target
    support = max(scale, 1.0) / 2
    matrix = torch.zeros(target, length, dtype=torch.float64)
    for place in range(target):
        center = (place + 0.5) * scale
        first, last = max(int(center - support + 0.5), 0), min(int(center + support + 0.5), length)
        inside = [at for at in range(first, last) if -support < at - center + 0.5 <= support]
        matrix[place, inside] = math.floor(2**22 / len(inside) + 0.5)
    return matrix
