"""What holds for every corruption: form, severity, determinism, batches, sizes, mistakes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from onefold.data import CORRUPTIONS as EXPORTED
from onefold.data.corrupt import CORRUPTIONS, EXTRA, corrupt
from onefold.data.corrupt.draws import Draws
from onefold.data.corrupt.severities import constants, nearest_side

ALL = (*CORRUPTIONS, *EXTRA)
Pictures = Callable[..., Tensor]


def natural(count: int, side: int) -> Tensor:
    """Colours at all scales, as in photographs: amplitude falls with frequency."""
    generator = torch.Generator().manual_seed(0)
    total = torch.full((count, 3, side, side), 0.5)
    cells = 2
    while cells <= side:
        grid = torch.rand(count, 3, cells, cells, generator=generator) - 0.5
        total += torch.nn.functional.interpolate(grid, (side, side), mode="bilinear") * (1.2 / cells**0.5)
        cells *= 2
    return (total.clamp(0.02, 0.98) * 255).to(torch.uint8)


def test_names() -> None:
    assert len(CORRUPTIONS) == 15
    assert len(EXTRA) == 4
    assert len(set(ALL)) == 19
    assert EXPORTED == CORRUPTIONS


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    ("height", "width", "channels"), [(28, 28, 1), (32, 32, 3), (40, 56, 3), (64, 64, 3), (7, 5, 1)]
)
def test_any_size(name: str, height: int, width: int, channels: int, pictures: Pictures) -> None:
    x = pictures(height, width, channels, count=3)
    before = x.clone()
    y = corrupt(x, name, 5, 0)
    assert y.shape == x.shape
    assert y.dtype == torch.uint8
    assert torch.equal(x, before)
    grey_as_it_is = name == "saturate" and channels == 1
    assert torch.equal(x, y) == grey_as_it_is


@pytest.mark.parametrize("name", ALL)
def test_at_the_size_of_imagenet(name: str, pictures: Pictures) -> None:
    x = pictures(224, 224, count=2)
    y = corrupt(x, name, 3, 0)
    assert y.shape == x.shape
    assert not torch.equal(x, y)


@pytest.mark.parametrize("name", ALL)
def test_same_bits_however_the_batch_is_split(name: str) -> None:
    """Three parts of uneven sizes, across the border of a block of 256."""
    x = natural(270, 32)
    whole = corrupt(x, name, 3, 7)
    parts = [corrupt(x[low:high], name, 3, 7, first=low) for low, high in ((0, 1), (1, 250), (250, 270))]
    assert torch.equal(torch.cat(parts), whole)
    assert torch.equal(corrupt(x, name, 3, 7), whole)


def test_images_of_a_later_block_draw_by_their_own_index() -> None:
    x = torch.full((260, 1, 32, 32), 128, dtype=torch.uint8)
    y = corrupt(x, "gaussian_noise", 1, 0, first=100)
    noise = Draws(0, "gaussian_noise 1", torch.tensor([100, 255, 256, 359])).normal(1, 32, 32)
    expected = (128 + 255 * 0.04 * noise).floor()
    assert (y[[0, 155, 156, 259]] == expected).float().mean().item() > 0.999
    assert len({image.numpy().tobytes() for image in y}) == len(y)


@pytest.mark.parametrize(
    "name", ["gaussian_noise", "glass_blur", "snow", "fog", "frost", "elastic_transform", "spatter"]
)
def test_seeds_severities_and_images_draw_apart(name: str) -> None:
    x = natural(1, 32).expand(2, -1, -1, -1)
    y = corrupt(x, name, 3, 0)
    assert not torch.equal(y[0], y[1])
    assert not torch.equal(corrupt(x, name, 3, 1)[0], y[0])


# Severities whose successor is no further from the clean image, by the published constants: more blur after the same
# moves (glass_blur), a longer kernel beyond four deviations (motion_blur), from affine maps to displacements
# (elastic_transform), larger and fewer flakes (snow), from water to mud (spatter), from less colour to more (saturate).
NO_WORSE = {
    ("glass_blur", 32): {2, 4},
    ("glass_blur", 64): {1, 3},
    ("glass_blur", 224): {1, 3},
    ("motion_blur", 32): {3},
    ("snow", 224): {2},
    ("elastic_transform", 32): {1, 2, 3, 4},
    ("elastic_transform", 64): {1, 3, 4},
    ("elastic_transform", 224): {2, 3},
    ("spatter", 32): {3},
    ("spatter", 64): {3},
    ("saturate", 32): {2},
    ("saturate", 64): {2},
    ("saturate", 224): {2},
}


def away(x: Tensor, y: Tensor, name: str) -> float:
    """The mean distance; for what also changes the whole image's brightness one minus the mean correlation instead."""
    if name not in ("frost", "fog"):
        return (y.float() - x).abs().mean().item()
    clean, other = (images.double().flatten(1) for images in (x, y))
    clean, other = clean - clean.mean(dim=1, keepdim=True), other - other.mean(dim=1, keepdim=True)
    return 1 - torch.nn.functional.cosine_similarity(clean, other).mean().item()


@pytest.mark.parametrize("side", [32, 64, 224])
@pytest.mark.parametrize("name", ALL)
def test_distance_grows_with_severity(name: str, side: int) -> None:
    x = natural({32: 256, 64: 64, 224: 5}[side], side)
    distances = [away(x, corrupt(x, name, severity, 0), name) for severity in range(1, 6)]
    assert min(distances) > 0.001
    no_worse = {severity for severity in range(1, 5) if distances[severity] <= distances[severity - 1]}
    assert no_worse == NO_WORSE.get((name, side), set()), distances


def test_no_images() -> None:
    assert corrupt(torch.zeros(0, 3, 32, 32, dtype=torch.uint8), "fog", 1, 0).shape == (0, 3, 32, 32)


def test_a_view_that_is_not_contiguous() -> None:
    x = natural(3, 32)
    strange = x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    for name in ALL:
        assert torch.equal(corrupt(strange, name, 2, 0), corrupt(x, name, 2, 0))


def test_constants_go_by_the_nearest_side() -> None:
    sides = {side: nearest_side(side, side + 50) for side in (1, 28, 32, 45, 46, 64, 96, 119, 120, 224, 600)}
    assert sides == {1: 32, 28: 32, 32: 32, 45: 32, 46: 64, 64: 64, 96: 64, 119: 64, 120: 224, 224: 224, 600: 224}
    assert constants("gaussian_noise", 5, 40, 90) == (0.10,)
    assert constants("gaussian_noise", 5, 300, 64) == (0.18,)
    assert constants("gaussian_noise", 5, 224, 224) == (0.38,)


def test_mistakes_are_named() -> None:
    x = torch.zeros(2, 3, 32, 32, dtype=torch.uint8)
    with pytest.raises(ValueError, match="'gausian_noise'; did you mean 'gaussian_noise'"):
        corrupt(x, "gausian_noise", 1, 0)
    with pytest.raises(ValueError, match="did you mean 'jpeg_compression'"):
        corrupt(x, "JPEG", 1, 0)
    with pytest.raises(ValueError, match="choose one of gaussian_noise, shot_noise"):
        corrupt(x, "qqq", 1, 0)
    for severity in (0, 6, 2.0, True, "3"):
        with pytest.raises(ValueError, match="severity: expected a whole number from 1 to 5"):
            corrupt(x, "fog", severity, 0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"expected a uint8 tensor .* got a torch\.float32 tensor"):
        corrupt(x.float(), "fog", 1, 0)
    with pytest.raises(ValueError, match="got a ndarray"):
        corrupt(x.numpy(), "fog", 1, 0)  # type: ignore[arg-type]
    for shape in ((2, 32, 32, 3), (3, 32, 32), (2, 4, 32, 32), (2, 3, 0, 32)):
        with pytest.raises(ValueError, match=r"expected \[N, C, H, W\] with 1 or 3 channels"):
            corrupt(torch.zeros(shape, dtype=torch.uint8), "fog", 1, 0)
    with pytest.raises(ValueError, match=r"seed: expected a whole number, got 1\.5"):
        corrupt(x, "fog", 1, 1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="first: expected a whole number from 0 on, got -1"):
        corrupt(x, "fog", 1, 0, first=-1)
