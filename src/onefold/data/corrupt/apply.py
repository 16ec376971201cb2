"""`corrupt`: any of the 19 corruptions at any of the 5 severities, for images of any size, on the images' device."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from onefold.data.corrupt.blur import defocus_blur, gaussian_blur, zoom_blur
from onefold.data.corrupt.colour import brightness, contrast, saturate
from onefold.data.corrupt.draws import Draws
from onefold.data.corrupt.elastic import elastic_transform
from onefold.data.corrupt.files import jpeg_compression, pixelate
from onefold.data.corrupt.frost import frost
from onefold.data.corrupt.glass import glass_blur
from onefold.data.corrupt.motion import motion_blur
from onefold.data.corrupt.noise import gaussian_noise, impulse_noise, shot_noise, speckle_noise
from onefold.data.corrupt.severities import constants
from onefold.data.corrupt.spatter import spatter
from onefold.data.corrupt.weather import fog, snow

# Each takes uint8 [B, C, H, W], draws and the constants of the severity, and returns uint8 [B, C, H, W].
FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    function.__name__: function
    for function in (
        gaussian_noise,
        shot_noise,
        impulse_noise,
        defocus_blur,
        glass_blur,
        motion_blur,
        zoom_blur,
        snow,
        frost,
        fog,
        brightness,
        contrast,
        elastic_transform,
        pixelate,
        jpeg_compression,
        speckle_noise,
        gaussian_blur,
        spatter,
        saturate,
    )
}
# Size of a block, so that it fits into a cache: 256 images up to 32 x 32, 64 of 64 x 64, 5 of 224 x 224.
PIXELS, IMAGES = 2**18, 256


@torch.no_grad()
def corrupt(images: Tensor, name: str, severity: int, seed: int, first: int = 0) -> Tensor:
    """`images` (uint8 `[N, C, H, W]`, one channel or RGB) after corruption `name` at `severity` 1 to 5.

    The random numbers of image i depend only on (seed, name, severity, first + i). So a set can be corrupted in several
    calls, with `first` the index of the first image, bit for bit as in a single call on the same device.
    """
    check(images, seed, first)
    strength = constants(name, severity, *images.shape[-2:])
    count, height, width = len(images), *images.shape[-2:]
    size = min(max(PIXELS // (height * width), 1), IMAGES)
    corrupted = torch.empty_like(images, memory_format=torch.contiguous_format)
    # Floating-point sums may depend on the size of a block and on an image's position in it. So blocks always have the
    # same size and start at multiples of it, and gaps are filled with black images.
    for start in range(first - first % size, first + count, size):
        low, high = max(start, first), min(start + size, first + count)
        block = images[low - first : high - first]
        if high - low < size:
            block = torch.zeros(size, *images.shape[1:], dtype=torch.uint8, device=images.device)
            block[low - start : high - start] = images[low - first : high - first]
        indices = torch.arange(start, start + size, device=images.device)
        done = FUNCTIONS[name](block.contiguous(), Draws(seed, f"{name} {severity}", indices), *strength)
        corrupted[low - first : high - first] = done[low - start : high - start]
    return corrupted


def check(images: Tensor, seed: int, first: int) -> None:
    if not isinstance(images, Tensor) or images.dtype != torch.uint8:
        got = f"{images.dtype} tensor" if isinstance(images, Tensor) else type(images).__name__
        raise ValueError(f"images: expected a uint8 tensor of values 0 to 255, got a {got}; convert it first")
    if images.dim() != 4 or images.shape[1] not in (1, 3) or 0 in images.shape[2:]:
        raise ValueError(f"images: expected [N, C, H, W] with 1 or 3 channels, got {list(images.shape)}")
    for name, value in (("seed", seed), ("first", first)):
        if isinstance(value, bool) or not isinstance(value, int) or (name == "first" and value < 0):
            raise ValueError(f"{name}: expected a whole number{' from 0 on' * (name == 'first')}, got {value!r}")
