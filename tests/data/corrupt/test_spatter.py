"""Spatter and its parts against plain loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.ndimage
import torch
from torch import Tensor

from onefold.data.corrupt import corrupt
from onefold.data.corrupt.draws import Draws
from onefold.data.corrupt.edges import canny, distance, equalised

ndimage: Any = scipy.ndimage  # its names are made when it is imported, so none are known to a type checker

Array = np.ndarray[Any, np.dtype[Any]]
SEED = 4


def canny_by_loops(image: Array, low: int, high: int) -> Array:
    """Ridges of |dx| + |dy| in four directions, then a flood from the strong ones."""
    pixels = image.astype(int)
    dx = ndimage.sobel(pixels, axis=1, mode="nearest")
    dy = ndimage.sobel(pixels, axis=0, mode="nearest")
    size = np.pad(np.abs(dx) + np.abs(dy), 1)
    height, width = image.shape
    ridge = np.zeros((height, width), dtype=bool)
    for r in range(height):
        for c in range(width):
            here, x, y = size[r + 1, c + 1], abs(int(dx[r, c])), abs(int(dy[r, c])) * 2**15
            if here <= low:
                continue
            narrow = x * 13573  # tan 22.5 degrees, in OpenCV's fixed point
            if y < narrow:
                ridge[r, c] = here > size[r + 1, c] and here >= size[r + 1, c + 2]
            elif y > narrow + x * 2**16:  # tan 67.5 = tan 22.5 + 2
                ridge[r, c] = here > size[r, c + 1] and here >= size[r + 2, c + 1]
            else:
                side = -1 if (dx[r, c] < 0) != (dy[r, c] < 0) else 1
                ridge[r, c] = here > size[r, c + 1 - side] and here > size[r + 2, c + 1 + side]
    patches, _ = ndimage.label(ridge, structure=np.ones((3, 3)))
    strong = np.unique(patches[ridge & (size[1:-1, 1:-1] > high)])
    return np.isin(patches, strong[strong > 0])


def chamfer_by_two_passes(edges: Array, most: float) -> Array:
    """The classical algorithm: once forward with the upper half of the 5 x 5 mask, once backward with the lower."""
    a, b, c = 65536, 91750, 143976
    mask = [(-2, -1, c), (-2, 1, c), (-1, -2, c), (-1, -1, b), (-1, 0, a), (-1, 1, b), (-1, 2, c), (0, -1, a)]
    height, width = edges.shape
    far = 10**9
    reached = np.where(edges, 0, far).astype(np.int64)
    for rows, columns, sign in ((range(height), range(width), 1), (range(height)[::-1], range(width)[::-1], -1)):
        for r in rows:
            for col in columns:
                for dr, dc, length in mask:
                    i, j = r + sign * dr, col + sign * dc
                    if 0 <= i < height and 0 <= j < width:
                        reached[r, col] = min(reached[r, col], reached[i, j] + length)
    return np.minimum(reached / 65536, most)


def equalised_by_loop(image: Array) -> Array:
    """Ranks over 0 to 255, the lowest value at 0."""
    counts = np.bincount(image.ravel(), minlength=256)
    lowest = image.min()
    rest = image.size - counts[lowest]
    if not rest:
        return image.astype(float)
    table = np.zeros(256)
    for value in range(lowest + 1, 256):
        total = int(counts[lowest + 1 : value + 1].sum())
        table[value] = round(total * 255 / rest)
    return table[image]


def layers(count: int, height: int, width: int, threshold: float = 0.69) -> Array:
    """Smoothed noise above a threshold, as bytes."""
    noise = np.random.default_rng(count).normal(0.65, 0.3, (count, height, width))
    liquid = ndimage.gaussian_filter(noise, (0, 1, 1), mode="nearest")
    layer: Array = (np.where(liquid < threshold, 0, np.clip(liquid, 0, 1)) * 255).astype(np.uint8)
    return layer


def test_canny() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (4, 17, 23)).astype(np.uint8)
    smooth = ndimage.gaussian_filter(noise, (0, 2, 2))
    for images in (layers(5, 32, 32), noise, smooth):
        for low, high in ((50, 150), (20, 60)):
            ours = canny(torch.from_numpy(images), low, high).numpy()
            expected = np.stack([canny_by_loops(image, low, high) for image in images])
            assert (ours == expected).all()
            assert low != 50 or images is smooth or expected.any()


@pytest.mark.parametrize("shape", [(32, 32), (9, 50), (1, 40), (2, 2)])
def test_distance(shape: tuple[int, int]) -> None:
    numbers = np.random.default_rng(1)
    edges = np.stack([numbers.random(shape) < share for share in (0.0, 0.004, 0.02, 0.3)])
    edges[1, 0, 0] = True
    ours = distance(torch.from_numpy(edges), 20).numpy()
    assert np.allclose(ours, [chamfer_by_two_passes(image, 20) for image in edges], rtol=0, atol=1e-6)


def test_equalised() -> None:
    images = np.random.default_rng(2).integers(0, 21, (6, 9, 9))
    images[4] = 7
    images[5] = np.maximum(images[5], 12)
    ours = equalised(torch.from_numpy(images), 21).numpy()
    assert (ours == [equalised_by_loop(image) for image in images]).all()


def water_by_parts(liquid: Array) -> Array:
    layer = np.floor(liquid * 255 + 1e-6).astype(int) % 256
    near = chamfer_by_two_passes(canny_by_loops(layer, 50, 150), 20)
    ranked = equalised_by_loop(np.floor(ndimage.uniform_filter(near, 3, mode="mirror") + 1e-4).astype(int))
    kernel = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])
    relief = np.clip(ndimage.correlate(ranked, kernel, mode="mirror"), 0, 255)
    amount = layer * np.round(ndimage.uniform_filter(relief, 3, mode="mirror"))
    water: Array = amount / amount.max()
    return water


@pytest.mark.parametrize(
    ("shape", "severity", "constants"),
    [
        ((32, 32), 1, (0.62, 0.1, 0.7, 0.7, 0.5)),
        ((32, 32), 3, (0.65, 0.3, 1, 0.69, 0.5)),
        ((40, 56), 2, (0.65, 0.1, 0.8, 0.7, 0.5)),
        ((64, 64), 3, (0.65, 0.3, 1, 0.69, 0.6)),
    ],
)
def test_water(
    shape: tuple[int, int],
    severity: int,
    constants: tuple[float, ...],
    pictures: Callable[..., Tensor],
    cut: Callable[..., None],
) -> None:
    mean, deviation, smoothing, threshold, strength = constants
    x = pictures(*shape, count=3)
    noise = Draws(SEED, f"spatter {severity}", torch.arange(len(x))).normal(*shape).double().numpy() * deviation + mean
    expected = x.double().numpy()
    for i, layer in enumerate(noise):
        liquid = ndimage.gaussian_filter(layer, smoothing, mode="nearest", truncate=4)
        drops = water_by_parts(np.where(liquid < threshold, 0, liquid))
        expected[i] += strength * drops * np.array([175, 238, 238])[:, None, None]
    cut(corrupt(x, "spatter", severity, SEED), expected)


@pytest.mark.parametrize(
    ("side", "severity", "constants"),
    [(32, 4, (0.65, 0.1, 0.7, 0.69, 0.6)), (64, 5, (0.65, 0.1, 0.5, 0.67, 0.6)), (224, 5, (0.67, 0.4, 1, 0.65, 1.5))],
)
def test_mud(
    side: int, severity: int, constants: tuple[float, ...], pictures: Callable[..., Tensor], cut: Callable[..., None]
) -> None:
    mean, deviation, smoothing, threshold, softness = constants
    x = pictures(side, side, count=2)
    noise = Draws(SEED, f"spatter {severity}", torch.arange(2)).normal(side, side).double().numpy() * deviation + mean
    expected = x.double().numpy()
    for i, layer in enumerate(noise):
        liquid = ndimage.gaussian_filter(layer, smoothing, mode="nearest", truncate=4)
        cover = ndimage.gaussian_filter((liquid > threshold).astype(float), softness, mode="nearest", truncate=4)
        cover[cover < 0.8] = 0
        assert cover.any()
        expected[i] = expected[i] * (1 - cover) + cover * np.array([63, 42, 20])[:, None, None]
    cut(corrupt(x, "spatter", severity, SEED), expected)


def test_one_channel_gets_the_luminance_of_the_liquid() -> None:
    x = torch.zeros(2, 1, 32, 32, dtype=torch.uint8)
    for severity in (3, 5):
        rgb = corrupt(x.expand(-1, 3, -1, -1), "spatter", severity, 0).double()
        grey = 0.299 * rgb[:, 0] + 0.587 * rgb[:, 1] + 0.114 * rgb[:, 2]
        assert (corrupt(x, "spatter", severity, 0)[:, 0] - grey).abs().max() < 1.01
