from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from onefold.data import CropFlip, Draws, ResizedCrop, crop_and_flip, draw
from onefold.data.augment import as_input


def one_by_one(images: Tensor, draws: Draws, pad: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """The definition, pixel by pixel."""
    count, channels, height, width = images.shape
    result = np.zeros((count, channels, height, width), dtype=np.uint8)
    for b in range(count):
        for i in range(height):
            for j in range(width):
                row = i + int(draws.top[b]) - pad
                column = (width - 1 - j if draws.flip[b] else j) + int(draws.left[b]) - pad
                if 0 <= row < height and 0 <= column < width:
                    result[b, :, i, j] = images[b, :, row, column].numpy()
    return result


@settings(deadline=None, max_examples=30)
@given(
    count=st.integers(0, 5),
    channels=st.integers(1, 3),
    height=st.integers(1, 7),
    width=st.integers(1, 7),
    pad=st.integers(0, 4),
    flip=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_agrees_with_the_definition(
    count: int, channels: int, height: int, width: int, pad: int, flip: bool, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(1, 256, (count, channels, height, width), dtype=torch.uint8, generator=generator)
    draws = draw(count, CropFlip(pad, flip), generator)
    ours = crop_and_flip(images, draws, pad)
    assert ours.dtype == torch.uint8
    np.testing.assert_array_equal(ours.numpy(), one_by_one(images, draws, pad))


def test_draws_use_every_place_and_both_sides() -> None:
    draws = draw(2000, CropFlip(2), torch.Generator().manual_seed(0))
    assert draws.top.unique().tolist() == draws.left.unique().tolist() == [0, 1, 2, 3, 4]
    assert 0.45 < draws.flip.double().mean() < 0.55
    assert (draws.top != draws.left).any()
    assert not draw(2000, CropFlip(2, flip=False), torch.Generator().manual_seed(0)).flip.any()


def test_the_same_generator_gives_the_same_draws() -> None:
    first, second = (draw(50, CropFlip(), torch.Generator().manual_seed(3)) for _ in range(2))
    other = draw(50, CropFlip(), torch.Generator().manual_seed(4))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert not torch.equal(first.top, other.top)


def test_traces_into_one_graph() -> None:
    images = torch.randint(0, 256, (4, 3, 8, 8), dtype=torch.uint8)
    draws = draw(4, CropFlip(), torch.Generator().manual_seed(0))
    compiled = torch.compile(crop_and_flip, fullgraph=True, backend="eager")
    assert torch.equal(compiled(images, draws, 4), crop_and_flip(images, draws, 4))


def test_pixels_become_floats_up_to_one_and_floats_stay() -> None:
    pixels = torch.arange(256, dtype=torch.uint8)
    assert as_input(pixels).dtype == torch.float32
    np.testing.assert_array_equal(as_input(pixels).numpy(), np.arange(256, dtype=np.float32) / np.float32(255))
    floats = torch.randn(5, dtype=torch.float64)
    assert as_input(floats) is floats


def test_refuses_what_is_no_augmentation() -> None:
    with pytest.raises(ValueError, match="pad: expected at least 0, got -1"):
        CropFlip(-1)
    with pytest.raises(ValueError, match="size: expected at least 1, got 0"):
        ResizedCrop(0)
