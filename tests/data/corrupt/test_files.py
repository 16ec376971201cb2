"""Pixelate and JPEG against Pillow, to the bit."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from onefold.data.corrupt import corrupt
from onefold.data.corrupt.files import boxed


def by_pillow(x: Tensor, function: Callable[[Image.Image], Image.Image]) -> Tensor:
    done = []
    for image in x:
        pixels = image.permute(1, 2, 0).numpy()
        answer = np.asarray(function(Image.fromarray(pixels[..., 0] if len(image) == 1 else pixels)))
        done.append(torch.from_numpy(answer.reshape(pixels.shape).copy()).permute(2, 0, 1))
    return torch.stack(done)


@pytest.mark.parametrize(
    ("height", "width", "channels", "factors"),
    [
        (32, 32, 3, (0.95, 0.9, 0.85, 0.75, 0.65)),
        (28, 28, 1, (0.95, 0.9, 0.85, 0.75, 0.65)),
        (40, 56, 3, (0.95, 0.9, 0.85, 0.75, 0.65)),
        (64, 64, 3, (0.9, 0.8, 0.7, 0.6, 0.5)),
        (224, 224, 3, (0.6, 0.5, 0.4, 0.3, 0.25)),
    ],
)
def test_pixelate(
    height: int, width: int, channels: int, factors: tuple[float, ...], pictures: Callable[..., Tensor]
) -> None:
    x = pictures(height, width, channels, count=3)
    for severity, factor in enumerate(factors, start=1):

        def small_and_back(image: Image.Image, factor: float = factor) -> Image.Image:
            small = image.resize((int(width * factor), int(height * factor)), Image.Resampling.BOX)
            return small.resize((width, height), Image.Resampling.BOX)

        assert torch.equal(corrupt(x, "pixelate", severity, 0), by_pillow(x, small_and_back))


def test_the_box_filter_is_pillows_for_any_two_sizes() -> None:
    numbers = np.random.default_rng(0)
    for length in range(1, 41, 3):
        line = torch.from_numpy(numbers.integers(0, 256, (1, length), dtype=np.uint8))
        for target in range(1, 60):
            expected = np.asarray(Image.fromarray(line.numpy()).resize((target, 1), Image.Resampling.BOX))
            assert (boxed(line.double(), target).numpy() == expected).all(), (length, target)


@pytest.mark.parametrize(
    ("side", "channels", "qualities"),
    [
        (32, 3, (80, 65, 58, 50, 40)),
        (28, 1, (80, 65, 58, 50, 40)),
        (64, 3, (65, 58, 50, 40, 25)),
        (224, 3, (25, 18, 15, 10, 7)),
    ],
)
def test_jpeg(side: int, channels: int, qualities: tuple[int, ...], pictures: Callable[..., Tensor]) -> None:
    x = pictures(side, side, channels, count=3)
    for severity, quality in enumerate(qualities, start=1):

        def stored(image: Image.Image, quality: int = quality) -> Image.Image:
            file = io.BytesIO()
            image.save(file, "JPEG", quality=quality)
            return Image.open(io.BytesIO(file.getvalue()))

        assert torch.equal(corrupt(x, "jpeg_compression", severity, 0), by_pillow(x, stored))
