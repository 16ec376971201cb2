"""Edges and distances to them as in OpenCV, for a whole block: in integers, so bit for bit the same."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from onefold.data.corrupt.linear import padded

# Lengths of a straight step, a diagonal step and a knight's move, in units of 2^-16: the 5 x 5 chamfer mask.
UNIT = 2**16
SIDE_STEP, CORNER_STEP, KNIGHT_STEP = 65536, 91750, 143976
TANGENT = 13573  # tan(22.5 degrees) in units of 2^-15


def canny(image: Tensor, low: int, high: int) -> Tensor:
    """Edges, bool `[B, H, W]`, of uint8 `[B, H, W]`: the ridges of Sobel's gradient that are connected to a value above
    `high` by values above `low`."""
    wide = padded(image, 1, "nearest").int()
    height, width = image.shape[-2:]

    def part(down: int, across: int, of: Tensor) -> Tensor:
        return of[:, 1 + down : 1 + down + height, 1 + across : 1 + across + width]

    def at(down: int, across: int) -> Tensor:
        return part(down, across, wide)

    right = (at(-1, 1) + 2 * at(0, 1) + at(1, 1)) - (at(-1, -1) + 2 * at(0, -1) + at(1, -1))
    down = (at(1, -1) + 2 * at(1, 0) + at(1, 1)) - (at(-1, -1) + 2 * at(-1, 0) + at(-1, 1))
    size = right.abs() + down.abs()
    around = F.pad(size, (1, 1, 1, 1))  # nothing beyond the border
    flat = (down.abs() << 15) < right.abs() * TANGENT
    steep = (down.abs() << 15) > right.abs() * (TANGENT + (1 << 16))
    across = (size > part(0, -1, around)) & (size >= part(0, 1, around))
    upright = (size > part(-1, 0, around)) & (size >= part(1, 0, around))
    falling = (size > part(-1, -1, around)) & (size > part(1, 1, around))
    rising = (size > part(-1, 1, around)) & (size > part(1, -1, around))
    slanted = torch.where((right ^ down) < 0, rising, falling)
    ridge = torch.where(flat, across, torch.where(steep, upright, slanted)) & (size > low)
    return connected(ridge & (size > high), ridge)


def connected(seeds: Tensor, allowed: Tensor) -> Tensor:
    """Seeds, and all pixels of `allowed` that touch them by sides or corners, directly or through others."""
    while True:
        grown = (F.max_pool2d(seeds[:, None].float(), 3, stride=1, padding=1)[:, 0] > 0) & allowed
        if torch.equal(grown, seeds):
            return seeds
        seeds = grown


def distance(edges: Tensor, most: int) -> Tensor:
    """Distance to the nearest edge, at most `most`: float32 `[B, H, W]`, in the 5 x 5 chamfer metric.

    A shortest path consists of moves in only two neighbouring directions, in any order. So one pass over each direction
    is enough, with 1, 2, 4, ... moves at once, which add up to any number of moves.
    """
    reached = torch.where(edges, 0, most * UNIT).int()
    height, width = edges.shape[-2:]
    for down, across, length in moves():
        times = 1
        while times * length < most * UNIT and times * abs(down) < height and times * abs(across) < width:
            target, origin = shifted(reached, times * down, times * across)
            # The two views overlap, which is safe: the sum is a new tensor, complete before anything is written.
            torch.minimum(target, origin + times * length, out=target)
            times *= 2
    return reached.float() / UNIT


def moves() -> list[tuple[int, int, int]]:
    signs = (-1, 1)
    straight = [(sign, 0, SIDE_STEP) for sign in signs] + [(0, sign, SIDE_STEP) for sign in signs]
    corners = [(down, across, CORNER_STEP) for down in signs for across in signs]
    knights = [(down * a, across * b, KNIGHT_STEP) for a, b in ((1, 2), (2, 1)) for down in signs for across in signs]
    return [*straight, *corners, *knights]


def shifted(x: Tensor, down: int, across: int) -> tuple[Tensor, Tensor]:
    """Views of the pixels where a move (down, across) ends, and of those where it starts."""
    height, width = x.shape[-2:]

    def spans(move: int, length: int) -> tuple[slice, slice]:
        return slice(max(move, 0), length + min(move, 0)), slice(max(-move, 0), length - max(move, 0))

    (rows_to, rows_from), (columns_to, columns_from) = spans(down, height), spans(across, width)
    return x[:, rows_to, columns_to], x[:, rows_from, columns_from]


def equalised(image: Tensor, levels: int) -> Tensor:
    """Histogram equalisation: spreads values `[B, H, W]` below `levels` over 0 to 255 by rank, the lowest to 0; an
    image with a single value stays as it is."""
    values = torch.arange(levels, device=image.device)
    flat = image.flatten(1).long()
    counts = torch.stack([(flat == value).sum(dim=1) for value in range(levels)], dim=1)  # [B, levels]
    lowest = flat.amin(dim=1, keepdim=True)
    rest = flat.shape[1] - counts.gather(1, lowest)
    # Cumulative counts of the values above the lowest; integers, but in float64 for the matrix product.
    up_to = (values[:, None] <= values).double()
    ranks = torch.where(values > lowest, counts, 0).double() @ up_to
    table = torch.where(rest > 0, (ranks * 255 / rest.clamp(min=1)).round(), values.double()).float()
    return table.gather(1, flat).view(image.shape)
