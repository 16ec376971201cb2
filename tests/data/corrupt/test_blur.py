"""Blurs against scipy.ndimage and plain loops."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.ndimage
import torch
from torch import Tensor

from onefold.data.corrupt import corrupt
from onefold.data.corrupt.draws import Draws

ndimage: Any = scipy.ndimage  # its names are made when it is imported, so none are known to a type checker

Array = np.ndarray[Any, np.dtype[Any]]
Pictures = Callable[..., Tensor]
Cut = Callable[..., None]
SEED = 5


def filtered(x: Tensor, function: Callable[[Array], Array]) -> Array:
    """A function of `[H, W]` for every channel of every image."""
    return np.stack([[function(channel.double().numpy()) for channel in image] for image in x])


@pytest.mark.parametrize(
    ("shape", "severity", "deviation"),
    [((32, 32), 1, 0.4), ((32, 32), 5, 1), ((40, 56), 3, 0.7), ((64, 64), 5, 1.5), ((224, 224), 5, 6), ((8, 8), 5, 1)],
)
def test_gaussian_blur(shape: tuple[int, int], severity: int, deviation: float, pictures: Pictures, cut: Cut) -> None:
    x = pictures(*shape, count=3)
    expected = filtered(x, lambda c: ndimage.gaussian_filter(c, deviation, mode="nearest", truncate=4))
    cut(corrupt(x, "gaussian_blur", severity, SEED), expected)


def disk(radius: float, deviation: float) -> Array:
    """Pixels within the radius, then a Gaussian of 3 or 5 taps, both by plain loops."""
    reach, taps = (8, 1) if radius <= 8 else (int(radius), 2)
    side = 2 * reach + 1
    inside = np.array(
        [[float((r - reach) ** 2 + (c - reach) ** 2 <= radius**2) for c in range(side)] for r in range(side)]
    )
    inside /= inside.sum()
    weights = np.array([math.exp(-(t**2) / (2 * deviation**2)) for t in range(-taps, taps + 1)])
    weights /= weights.sum()
    for axis in (0, 1):
        inside = ndimage.correlate1d(inside, weights, axis=axis, mode="mirror")
    return inside


@pytest.mark.parametrize(
    ("shape", "severity", "constants"),
    [
        ((32, 32), 1, (0.3, 0.4)),
        ((32, 32), 4, (1, 0.2)),
        ((32, 32), 5, (1.5, 0.1)),
        ((64, 80), 4, (2.5, 0.01)),
        ((224, 224), 2, (4, 0.5)),
        ((224, 224), 5, (10, 0.5)),
    ],
)
def test_defocus_blur(
    shape: tuple[int, int], severity: int, constants: tuple[float, float], pictures: Pictures, cut: Cut
) -> None:
    x = pictures(*shape, count=2)
    kernel = disk(*constants)
    cut(
        corrupt(x, "defocus_blur", severity, SEED),
        filtered(x, lambda c: ndimage.correlate(c, kernel, mode="mirror")),
    )


def zoomed(channel: Array, factor: float) -> Array:
    """The middle of the image, stretched by SciPy; sides apart, so that any shape will do."""
    parts = [math.ceil(side / factor) for side in channel.shape]
    tops = [(side - part) // 2 for side, part in zip(channel.shape, parts, strict=True)]
    middle = channel[tops[0] : tops[0] + parts[0], tops[1] : tops[1] + parts[1]]
    large = ndimage.zoom(middle, factor, order=1)
    trims = [(big - side) // 2 for big, side in zip(large.shape, channel.shape, strict=True)]
    kept: Array = large[trims[0] : trims[0] + channel.shape[0], trims[1] : trims[1] + channel.shape[1]]
    return kept


@pytest.mark.parametrize(
    ("shape", "severity", "end", "step"),
    [((32, 32), 1, 1.06, 0.01), ((32, 32), 5, 1.26, 0.01), ((40, 56), 3, 1.16, 0.01), ((224, 224), 5, 1.31, 0.03)],
)
def test_zoom_blur(
    shape: tuple[int, int], severity: int, end: float, step: float, pictures: Pictures, cut: Cut
) -> None:
    x = pictures(*shape, count=2)
    factors = np.arange(1, end, step)

    def blurred(channel: Array) -> Array:
        total: Array = sum((zoomed(channel, factor) for factor in factors), start=channel)
        return total / (len(factors) + 1)

    cut(corrupt(x, "zoom_blur", severity, SEED), filtered(x, blurred))


def shuffled(image: Array, moves: Array, reach: int) -> Array:
    """The walk, with the assignment through views of `[H, W, C]` as NumPy executes it: a copy, not a swap."""
    image = image.transpose(1, 2, 0).copy()
    height, width = image.shape[:2]
    for h in range(height - reach, reach, -1):
        for w in range(width - reach, reach, -1):
            dx, dy = moves[:, h, w]
            image[h, w], image[h + dy, w + dx] = image[h + dy, w + dx], image[h, w]
    return image.transpose(2, 0, 1)


@pytest.mark.parametrize(
    ("shape", "severity", "constants"),
    [
        ((32, 32), 1, (0.05, 1, 1)),
        ((32, 32), 5, (0.4, 1, 2)),
        ((64, 70), 5, (0.9, 2, 2)),
        ((120, 120), 5, (1.5, 4, 2)),
        ((120, 120), 3, (1, 2, 3)),
    ],
)
def test_glass_blur(
    shape: tuple[int, int], severity: int, constants: tuple[float, int, int], pictures: Pictures, cut: Cut
) -> None:
    deviation, reach, rounds = constants
    x = pictures(*shape, count=2)
    draws = Draws(SEED, f"glass_blur {severity}", torch.arange(len(x)))

    def smooth(channel: Array) -> Array:
        return np.asarray(ndimage.gaussian_filter(channel, deviation, mode="nearest", truncate=4))

    pixels = np.floor(filtered(x, smooth) + 1e-3)
    for _ in range(rounds):
        moves = draws.integers(-reach, reach, 2, *shape).numpy()
        pixels = np.stack([shuffled(image, move, reach) for image, move in zip(pixels, moves, strict=True)])
    cut(corrupt(x, "glass_blur", severity, SEED), filtered(torch.from_numpy(pixels), smooth))


def moved(channel: Array, degrees: float, radius: int, deviation: float) -> Array:
    """ImageMagick's motion blur, tap by tap: half a Gaussian along a line, the edge going on."""
    width = 2 * radius + 1
    weights = [math.exp(-(i**2) / (2 * deviation**2)) for i in range(width)]
    height, breadth = channel.shape
    out = np.zeros_like(channel)
    for i, weight in enumerate(weights):
        across = math.ceil(i * math.cos(math.radians(degrees)) - 0.5)
        down = math.ceil(i * math.sin(math.radians(degrees)) - 0.5)
        rows = np.clip(np.arange(height) + down, 0, height - 1)
        columns = np.clip(np.arange(breadth) + across, 0, breadth - 1)
        out += weight / sum(weights) * channel[np.ix_(rows, columns)]
    return out


@pytest.mark.parametrize(
    ("shape", "severity", "constants"),
    [
        ((32, 32), 1, (6, 1)),
        ((32, 32), 5, (9, 2.5)),
        ((40, 56), 4, (8, 2)),
        ((64, 64), 5, (12, 3)),
        ((224, 224), 5, (20, 15)),
    ],
)
def test_motion_blur(
    shape: tuple[int, int], severity: int, constants: tuple[int, float], pictures: Pictures, cut: Cut
) -> None:
    x = pictures(*shape, count=2)
    angles = Draws(SEED, f"motion_blur {severity}", torch.arange(len(x))).uniform(-45, 45, 1)[:, 0].tolist()
    expected = np.stack(
        [
            [moved(channel.double().numpy(), angle, *constants) for channel in image]
            for image, angle in zip(x, angles, strict=True)
        ]
    )
    cut(corrupt(x, "motion_blur", severity, SEED), expected + 0.5)  # rounded, not cut
