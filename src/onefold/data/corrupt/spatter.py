"""Spatter: drops of water or specks of mud on the lens."""

from __future__ import annotations

import torch
from torch import Tensor

from onefold.data.corrupt.colour import tinted
from onefold.data.corrupt.draws import Draws
from onefold.data.corrupt.edges import canny, distance, equalised
from onefold.data.corrupt.linear import padded, smoothed, to_bytes

WATER = (175.0, 238.0, 238.0)  # pale turquoise
MUD = (63.0, 42.0, 20.0)
FURTHEST = 20  # pixels from the edge of a drop, at most
RELIEF = ((-2, -1, 0), (-1, 1, 1), (0, 1, 2))  # light from one side


def spatter(
    x: Tensor,
    draws: Draws,
    mean: float,
    deviation: float,
    smoothing: float,
    threshold: float,
    strength: float,
    mud: float,
) -> Tensor:
    """There is liquid where smoothed noise is above the threshold. Water is added to the image, with a relief that
    follows the edges of the drops; mud covers the image."""
    noise = draws.normal(*x.shape[-2:]).mul_(deviation).add_(mean)
    liquid = smoothed(noise, smoothing)
    if mud:
        cover = smoothed((liquid > threshold).float(), strength)
        cover = torch.where(cover < 0.8, 0.0, cover)[:, None]
        return to_bytes(x * (1 - cover) + tinted(MUD, x.shape[1], x.device) * cover)
    drops = water(torch.where(liquid < threshold, 0.0, liquid))[:, None]
    return to_bytes(x + strength * drops * tinted(WATER, x.shape[1], x.device))


def water(liquid: Tensor) -> Tensor:
    """The amount of water, `[B, H, W]` with a maximum of one, for liquid in [0, 1]."""
    layer = (255 * liquid + 1e-6).int() & 255  # the few values above 1 wrap around, as in the benchmark
    near = distance(canny(layer.to(torch.uint8), 50, 150), FURTHEST)
    ranked = equalised((box(near) / 9 + 1e-4).int(), FURTHEST + 1)
    wide = padded(ranked, 1, "mirror")
    height, width = ranked.shape[-2:]
    relief = torch.zeros_like(ranked)
    for top, row in enumerate(RELIEF):
        for left, weight in enumerate(row):
            relief += weight * wide[:, top : top + height, left : left + width]
    amount = layer * (box(relief.clamp_(0, 255)) / 9).round()
    return amount / amount.amax(dim=(1, 2), keepdim=True).clamp(min=1)


def box(x: Tensor) -> Tensor:
    """Sums over 3 x 3 pixels, mirrored beyond the border."""
    wide = padded(x, 1, "mirror")
    tall = wide[:, :-2] + wide[:, 1:-1] + wide[:, 2:]
    return tall[..., :-2] + tall[..., 1:-1] + tall[..., 2:]
