"""Mean and standard deviation of each channel, for values as a network sees them."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from onefold.data.pictures import Pictures

SAMPLE = 2048  # images of a streamed set that are read for its statistics
SIDE = 64  # what they are scaled to: moments of pixels hardly depend on it


class Statistics(NamedTuple):
    """One value for each channel (or feature): `mean, std = source.statistics`."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


# Not the exact moments, but the values every published ImageNet checkpoint was trained with.
IMAGENET = Statistics((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def statistics_of(x: Tensor) -> Statistics:
    """Over all examples and positions of `[N, C, ...]`; uint8 counts as value / 255."""
    moments = [counted(x[:, c]) if x.dtype == torch.uint8 else summed(x[:, c]) for c in range(x.shape[1])]
    mean, std = zip(*moments, strict=True)
    return Statistics(tuple(map(shown, mean)), tuple(shown(s) if s > 0 else 1.0 for s in std))


def counted(channel: Tensor) -> tuple[float, float]:
    """Mean and deviation of bytes, from how often each of the 256 occurs: exact, and no copy as floats."""
    counts = torch.bincount(channel.flatten(), minlength=256).double()
    values = torch.arange(256, dtype=torch.float64) / 255
    mean = (counts * values).sum() / counts.sum()
    variance = (counts * (values - mean) ** 2).sum() / counts.sum()
    return float(mean), math.sqrt(float(variance))


def summed(channel: Tensor) -> tuple[float, float]:
    """Mean and deviation of floats."""
    values = channel.double()
    return float(values.mean()), float(values.std(correction=0))


def shown(value: float) -> float:
    """Four significant digits: what is shown is what is used."""
    return float(f"{value:.4g}")


def sampled(pictures: Pictures) -> Statistics:
    """From at most `SAMPLE` images spread evenly over the set."""
    total = len(pictures)
    indices = range(0, total, -(-total // SAMPLE))
    images = [pictures[index][0].resize((SIDE, SIDE)) for index in indices]
    pixels = torch.stack([torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8) for image in images])
    return statistics_of(pixels.view(len(images), SIDE, SIDE, 3).permute(0, 3, 1, 2))
