"""Noise: Gaussian, shot, impulse and speckle."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from onefold.data.corrupt.draws import Draws
from onefold.data.corrupt.linear import to_bytes


def gaussian_noise(x: Tensor, draws: Draws, deviation: float) -> Tensor:
    """x + deviation z, z standard normal for each value."""
    return to_bytes(x + draws.normal(*x.shape[1:]).mul_(255 * deviation))


def speckle_noise(x: Tensor, draws: Draws, deviation: float) -> Tensor:
    """x + x deviation z, z standard normal for each value."""
    return to_bytes(x * draws.normal(*x.shape[1:]).mul_(deviation).add_(1))


def impulse_noise(x: Tensor, draws: Draws, amount: float) -> Tensor:
    """Every value becomes black or white with probability amount / 2 each."""
    bits = draws.bits(*x.shape[1:])
    changed = round(amount * 2**32)
    return torch.where(bits < changed, (bits < changed // 2) * 255, x).to(torch.uint8)


def shot_noise(x: Tensor, draws: Draws, photons: float) -> Tensor:
    """Poisson(photons x) / photons for each value x in [0, 1]."""
    table, levels = poisson_table(photons)
    table = table.to(x.device)
    value = x.long()
    # With 32 random bits appended to the value, a single search in a table for all values finds the count.
    counts = torch.searchsorted(table, (value << 32) + draws.bits(*x.shape[1:]), right=True) - value * levels
    return to_bytes(counts * (255 / photons))


@lru_cache(maxsize=16)
def poisson_table(photons: float) -> tuple[Tensor, int]:
    """value 2^32 + P(count <= k) 2^32 for k = 0, 1, ..., concatenated for values 0 to 255; and the number of k."""
    levels = int(photons + 9 * photons**0.5 + 30)
    count = torch.arange(levels, dtype=torch.float64)
    rate = torch.arange(256, dtype=torch.float64)[:, None] * (photons / 255)
    log_density = torch.special.xlogy(count, rate) - rate - torch.lgamma(count + 1)
    reached = (log_density.exp().cumsum(dim=1) * 2**32).round().long().clamp(max=2**32)
    reached[:, -1] = 2**32
    return (reached + (torch.arange(256) << 32)[:, None]).flatten(), levels
