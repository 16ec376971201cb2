"""Mean and standard deviation of each channel, of the values that a network sees."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from onefold.data.pictures import Pictures

SAMPLE = 2048  # images that are read for the statistics of a streamed set


class Statistics(NamedTuple):
    """One value for each channel (or feature): `mean, std = source.statistics`."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


# Not the exact moments, but the values that every published ImageNet checkpoint was trained with.
IMAGENET = Statistics((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def statistics_of(x: Tensor) -> Statistics:
    """Over all examples and positions of `[N, C, ...]`; uint8 counts as value / 255."""
    channels = [x[:, c] for c in range(x.shape[1])]
    if x.dtype == torch.uint8:
        return counted([occurrences(channel) for channel in channels])
    return rounded([summed(channel) for channel in channels])


def sampled(pictures: Pictures) -> Statistics:
    """From at most `SAMPLE` images spread evenly over the set, at their original size."""
    counts = [torch.zeros(256, dtype=torch.long) for _ in range(3)]
    for index in range(0, len(pictures), -(-len(pictures) // SAMPLE)):
        pixels = torch.from_numpy(np.array(pictures[index][0]))  # [H, W, 3]
        counts = [count + occurrences(pixels[:, :, c]) for c, count in enumerate(counts)]
    return counted(counts)


def occurrences(pixels: Tensor) -> Tensor:
    """How often each of the 256 byte values occurs `[256]`: gives exact moments without a copy as floats."""
    return torch.bincount(pixels.flatten(), minlength=256)


def counted(counts: Sequence[Tensor]) -> Statistics:
    """Moments from the occurrences in each channel."""
    values = torch.arange(256, dtype=torch.float64) / 255
    moments = []
    for count in counts:
        weights = count.double() / count.sum()
        mean = (weights * values).sum()
        moments.append((float(mean), math.sqrt(float((weights * (values - mean) ** 2).sum()))))
    return rounded(moments)


def rounded(moments: Sequence[tuple[float, float]]) -> Statistics:
    """Rounds, so that the values shown are those used; the deviation of a constant channel becomes one."""
    mean, std = zip(*moments, strict=True)
    return Statistics(tuple(map(shown, mean)), tuple(shown(deviation) if deviation > 0 else 1.0 for deviation in std))


def summed(channel: Tensor) -> tuple[float, float]:
    """Mean and deviation of floats."""
    values = channel.double()
    return float(values.mean()), float(values.std(correction=0))


def shown(value: float) -> float:
    """Four significant digits."""
    return float(f"{value:.4g}")
