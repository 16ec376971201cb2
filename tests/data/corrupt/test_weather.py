"""Snow, fog and frost against plain loops, NumPy and SciPy with the same draws."""

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
from onefold.data.corrupt.frost import PANES, SIDE, all_panes, scaled_panes

ndimage: Any = scipy.ndimage  # its names are made when it is imported, so none are known to a type checker

Array = np.ndarray[Any, np.dtype[Any]]
Pictures = Callable[..., Tensor]
Cut = Callable[..., None]
SEED = 21


def fractal(draws: Draws, size: int, decay: float) -> Array:
    """Diamond-square point by point: the corners of a cell and the cells around wrap at the border."""
    field = np.zeros((size, size))
    step, wobble = size, 100.0
    while step >= 2:
        half, count = step // 2, size // step
        reach = wobble**2
        noise = [draws.uniform(-reach, reach, count, count)[0].double().numpy() for _ in range(3)]
        cells = [(i, j) for i in range(count) for j in range(count)]

        def mean(*points: tuple[int, int]) -> float:
            return float(np.mean([field[r % size, c % size] for r, c in points]))

        for i, j in cells:
            r, c = i * step, j * step
            corners = mean((r, c), (r + step, c), (r, c + step), (r + step, c + step))
            field[r + half, c + half] = corners + noise[0][i, j]
        for i, j in cells:
            r, c = i * step, j * step
            across = mean((r, c), (r, c + step), (r + half, c + half), (r - half, c + half))
            field[r, c + half] = across + noise[1][i, j]
            down = mean((r, c), (r + step, c), (r + half, c + half), (r + half, c - half))
            field[r + half, c] = down + noise[2][i, j]
        step, wobble = half, wobble / decay
    field -= field.min()
    fractal: Array = field / field.max()
    return fractal


@pytest.mark.parametrize(
    ("shape", "severity", "weight", "decay"),
    [((32, 32), 1, 0.2, 3), ((32, 32), 5, 1.5, 1.75), ((40, 30), 4, 1, 2), ((64, 64), 3, 1, 2.5)],
)
def test_fog(shape: tuple[int, int], severity: int, weight: float, decay: float, pictures: Pictures, cut: Cut) -> None:
    x = pictures(*shape)
    size = 32 if max(shape) <= 32 else 64
    for i in (0, 1, 3, 5):
        density = fractal(Draws(SEED, f"fog {severity}", torch.tensor([i])), size, decay)[: shape[0], : shape[1]]
        pixels = x[i].double().numpy() / 255
        brightest = pixels.max()
        expected = 255 * (pixels + weight * density) * brightest / (brightest + weight)
        cut(corrupt(x, "fog", severity, SEED)[i], expected, 1e-2)


def blown(layer: Array, degrees: float, radius: int, deviation: float) -> Array:
    """Half a Gaussian along a line, pixel by pixel of the line, rounded."""
    weights = [math.exp(-(i**2) / (2 * deviation**2)) for i in range(2 * radius + 1)]
    height, width = layer.shape
    out = np.zeros_like(layer)
    for i, weight in enumerate(weights):
        across = math.ceil(i * math.cos(math.radians(degrees)) - 0.5)
        down = math.ceil(i * math.sin(math.radians(degrees)) - 0.5)
        rows, columns = (
            np.clip(np.arange(height) + down, 0, height - 1),
            np.clip(np.arange(width) + across, 0, width - 1),
        )
        out += weight / sum(weights) * layer[np.ix_(rows, columns)]
    return np.floor(out + 0.5)


@pytest.mark.parametrize(
    ("side", "severity", "constants"),
    [
        (32, 1, (0.1, 0.2, 1, 0.6, 8, 3, 0.95)),
        (32, 4, (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85)),
        (64, 5, (0.3, 0.3, 1.25, 0.65, 14, 12, 0.6)),
        (224, 3, (0.55, 0.3, 4, 0.9, 12, 8, 0.7)),
    ],
)
def test_snow(side: int, severity: int, constants: tuple[float, ...], pictures: Pictures) -> None:
    mean, deviation, zoom, threshold, radius, motion, kept = constants
    x = pictures(side, side, count=2)
    draws = Draws(SEED, f"snow {severity}", torch.arange(len(x)))
    noise = draws.normal(1, side, side)[:, 0].double().numpy() * deviation + mean
    angles = draws.uniform(-135, -45, 1)[:, 0].tolist()
    part = math.ceil(side / zoom)
    top = (side - part) // 2
    ours = corrupt(x, "snow", severity, SEED).numpy().astype(float)
    for image, flakes, angle, given in zip(x.double().numpy(), noise, angles, ours, strict=True):
        large = ndimage.zoom(flakes[top : top + part, top : top + part], zoom, order=1)
        trim = (len(large) - side) // 2
        layer = large[trim : trim + side, trim : trim + side]
        layer[layer < threshold] = 0
        layer = blown(np.floor(np.clip(layer, 0, 1) * 255 + 1e-3), angle, int(radius), motion)
        grey = 0.299 * image[0] + 0.587 * image[1] + 0.114 * image[2]
        white = kept * image + (1 - kept) * np.maximum(image, 1.5 * grey + 127.5)
        expected = np.clip(white + layer + np.rot90(layer, 2), 0, 255)
        # A flake cut or rounded the other way is one level, and the two layers are added.
        assert (np.abs(given - np.floor(expected)) <= 2).all()
        assert (given >= np.floor(expected - 2e-3)).mean() > 0.999
        assert (given <= np.floor(expected + 2e-3)).mean() > 0.999


@pytest.mark.parametrize(
    ("shape", "severity", "kept", "weight", "size"),
    [
        ((32, 32), 1, 1, 0.2, 0.2),
        ((32, 32), 5, 0.75, 0.45, 0.2),
        ((64, 80), 3, 0.8, 0.45, 0.3),
        ((224, 224), 5, 0.6, 0.75, 1),
    ],
)
def test_frost(
    shape: tuple[int, int], severity: int, kept: float, weight: float, size: float, pictures: Pictures, cut: Cut
) -> None:
    x = pictures(*shape)
    draws = Draws(SEED, f"frost {severity}", torch.arange(len(x)))
    which, corners = draws.integers(0, PANES, 1)[:, 0].tolist(), None
    panes = scaled_panes(size).double().numpy()
    assert panes.shape[-1] == int(SIDE * size)
    corners = draws.integers(0, panes.shape[-1], 2).tolist()
    expected = []
    for image, pane, (top, left) in zip(x.double().numpy(), which, corners, strict=True):
        turned = np.roll(panes[pane], (-top, -left), axis=(1, 2))
        expected.append(kept * image + weight * turned[:, : shape[0], : shape[1]])
    cut(corrupt(x, "frost", severity, SEED), np.stack(expected))


def test_panes_are_light_crystals_on_a_dark_blue_ground() -> None:
    panes = all_panes().double()
    assert panes.shape == (PANES, 3, SIDE, SIDE)
    red, green, blue = panes.mean(dim=(0, 2, 3)).tolist()
    assert 100 < red < green < blue < 180
    assert panes.std().item() > 30
    # No seam where the ends meet: neighbours across it differ as neighbours elsewhere do.
    seam = (panes[..., 0] - panes[..., -1]).abs().mean()
    inside = (panes[..., 1:] - panes[..., :-1]).abs().mean()
    assert 0.7 < seam / inside < 1.4


def test_frost_larger_than_a_pane() -> None:
    x = torch.zeros(1, 1, 40, 2 * SIDE, dtype=torch.uint8)
    ours = corrupt(x, "frost", 1, 0)
    side = int(SIDE * 0.2)
    assert torch.equal(ours[..., :side], ours[..., side : 2 * side])
