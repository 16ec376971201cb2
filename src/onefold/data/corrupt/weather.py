"""Snow and fog."""

from __future__ import annotations

import torch
from torch import Tensor

from onefold.data.corrupt.colour import grey
from onefold.data.corrupt.draws import Draws
from onefold.data.corrupt.linear import separable, to_bytes, zoom_matrix
from onefold.data.corrupt.motion import moved


def snow(
    x: Tensor,
    draws: Draws,
    mean: float,
    deviation: float,
    zoom: float,
    threshold: float,
    radius: float,
    motion: float,
    kept: float,
) -> Tensor:
    """Wind-blown flakes, and the same rotated by 180 degrees, over an image that is pulled toward a light grey:
    kept x + (1 - kept) max(x, 1.5 g + 0.5) + flakes + rotated flakes."""
    height, width = x.shape[-2:]
    noise = draws.normal(1, height, width).mul_(deviation).add_(mean)
    layer = separable(noise, zoom_matrix(height, zoom), zoom_matrix(width, zoom))
    layer = torch.where(layer < threshold, 0.0, layer)
    flakes = moved(to_bytes(255 * layer), draws.uniform(-135, -45, 1)[:, 0], radius, motion).float()
    pixels = x.float()
    whitened = kept * pixels + (1 - kept) * torch.maximum(pixels, 1.5 * grey(pixels) + 127.5)
    return to_bytes(whitened + flakes + flakes.flip(-2, -1))


def fog(x: Tensor, draws: Draws, weight: float, decay: float) -> Tensor:
    """(x + weight f) v / (v + weight), with a fractal f in [0, 1] and the largest value v of the image."""
    height, width = x.shape[-2:]
    size = 1 << (max(height, width) - 1).bit_length()
    density = plasma(draws, size, decay)[:, None, :height, :width]
    brightest = x.amax(dim=(1, 2, 3), keepdim=True) / 255
    return to_bytes((x + 255 * weight * density) * (brightest / (brightest + weight)))


def plasma(draws: Draws, size: int, decay: float) -> Tensor:
    """`[B, size, size]` in [0, 1] by diamond-square on a torus; size is a power of two.

    In each round, new points are added between those of the grid, each the mean of its four neighbours plus uniform
    noise of up to wobble^2; then the grid is twice as fine, and the wobble is divided by `decay`.
    """
    heights = torch.zeros(len(draws.keys), size, size, device=draws.keys.device)
    step, wobble = size, 100.0
    while step >= 2:
        half, count = step // 2, size // step

        def middle(total: Tensor, count: int = count, reach: float = wobble**2) -> Tensor:
            return total / 4 + draws.uniform(-reach, reach, count, count)

        corners = heights[:, ::step, ::step]
        pairs = corners + corners.roll(-1, 1)
        centres = middle(pairs + pairs.roll(-1, 2))
        heights[:, half::step, half::step] = centres
        heights[:, ::step, half::step] = middle(centres + centres.roll(1, 1) + corners + corners.roll(-1, 2))
        heights[:, half::step, ::step] = middle(centres + centres.roll(1, 2) + corners + corners.roll(-1, 1))
        step, wobble = half, wobble / decay
    heights = heights - heights.amin(dim=(1, 2), keepdim=True)
    return heights / heights.amax(dim=(1, 2), keepdim=True).clamp(min=1e-30)
