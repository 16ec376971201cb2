"""Brightness and saturation against colorsys, contrast against NumPy."""

from __future__ import annotations

import colorsys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from onefold.data.corrupt import corrupt

Array = np.ndarray[Any, np.dtype[Any]]
Cut = Callable[..., None]


def through_hsv(x: Tensor, change: Callable[[float, float, float], tuple[float, float, float]]) -> Array:
    """Pixel by pixel there and back with Python's own colorsys."""
    pixels = x.permute(0, 2, 3, 1).double().numpy() / 255
    changed = [colorsys.hsv_to_rgb(*change(*colorsys.rgb_to_hsv(*pixel))) for pixel in pixels.reshape(-1, 3)]
    return 255 * np.array(changed).reshape(pixels.shape).transpose(0, 3, 1, 2)


def colours() -> Tensor:
    """Random ones, all greys, and every corner of the cube."""
    numbers = np.random.default_rng(0)
    rows = [numbers.integers(0, 256, (250, 3)), np.repeat(np.arange(256)[:, None], 3, axis=1)]
    rows += [np.array([[r, g, b]]) for r in (0, 1, 255) for g in (0, 255) for b in (0, 254)]
    return torch.from_numpy(np.concatenate(rows).astype(np.uint8)).T.reshape(1, 3, 37, 14)


@pytest.mark.parametrize(("severity", "summand"), [(1, 0.05), (5, 0.3)])
def test_brightness(severity: int, summand: float, cut: Cut) -> None:
    x = colours()
    cut(corrupt(x, "brightness", severity, 0), through_hsv(x, lambda h, s, v: (h, s, min(v + summand, 1))))


@pytest.mark.parametrize(("severity", "factor", "summand"), [(1, 0.3, 0), (2, 0.1, 0), (3, 1.5, 0), (5, 2.5, 0.2)])
def test_saturate(severity: int, factor: float, summand: float, cut: Cut) -> None:
    x = colours()
    expected = through_hsv(x, lambda h, s, v: (h, min(s * factor + summand, 1), v))
    cut(corrupt(x, "saturate", severity, 0), expected)


@pytest.mark.parametrize(
    ("shape", "severity", "factor"), [((32, 32), 1, 0.75), ((40, 56), 5, 0.15), ((64, 64), 5, 0.05)]
)
def test_contrast(
    shape: tuple[int, int], severity: int, factor: float, pictures: Callable[..., Tensor], cut: Cut
) -> None:
    x = pictures(*shape)
    pixels = x.double().numpy()
    mean = pixels.mean(axis=(2, 3), keepdims=True)
    cut(corrupt(x, "contrast", severity, 0), (pixels - mean) * factor + mean)


def test_one_channel_is_a_grey_image() -> None:
    x = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16)
    rgb = x.expand(-1, 3, -1, -1)
    assert torch.equal(corrupt(x, "brightness", 3, 0), corrupt(rgb, "brightness", 3, 0)[:, :1])
    assert torch.equal(corrupt(x, "contrast", 3, 0), corrupt(rgb, "contrast", 3, 0)[:, :1])
    assert torch.equal(corrupt(x, "saturate", 5, 0), x)
