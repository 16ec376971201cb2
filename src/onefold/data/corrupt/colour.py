"""Corruptions of brightness and colour. A single channel is treated as three equal ones."""

from __future__ import annotations

import torch
from torch import Tensor

from onefold.data.corrupt.draws import Draws
from onefold.data.corrupt.linear import to_bytes

LUMA = (0.299, 0.587, 0.114)


def grey(x: Tensor) -> Tensor:
    """The luminance `[B, 1, H, W]` of `[B, C, H, W]`."""
    if x.shape[1] == 1:
        return x
    return LUMA[0] * x[:, :1] + LUMA[1] * x[:, 1:2] + LUMA[2] * x[:, 2:]


def tinted(colour: tuple[float, float, float], channels: int, device: torch.device) -> Tensor:
    """A colour as `[C, 1, 1]`; for one channel its luminance."""
    rgb = torch.tensor(colour, device=device)[None, :, None, None]
    return (rgb if channels == 3 else grey(rgb))[0]


def contrast(x: Tensor, draws: Draws, factor: float) -> Tensor:  # noqa: ARG001
    """(x - mean) factor + mean, with the mean of each channel of each image."""
    mean = x.mean(dim=(-2, -1), keepdim=True, dtype=torch.float64).float()
    return to_bytes((x - mean) * factor + mean)


def brightness(x: Tensor, draws: Draws, summand: float) -> Tensor:  # noqa: ARG001
    """The value v of HSV becomes v' = min(v + summand, 1): every channel times v' / v; black becomes a grey of v'."""
    value = x.amax(dim=1, keepdim=True).float()
    brighter = (value + 255 * summand).clamp_(max=255)
    return to_bytes(torch.where(value > 0, x * (brighter / value.clamp(min=1)), brighter))


def saturate(x: Tensor, draws: Draws, factor: float, summand: float) -> Tensor:  # noqa: ARG001
    """The saturation s of HSV becomes s' = clip(factor s + summand); grey, whose hue counts as 0, turns red.

    With v the largest and m the smallest channel, s = (v - m) / v, and a channel c is v (1 - s d) with
    d = (v - c) / (v - m).
    """
    if x.shape[1] == 1:  # no colour to saturate
        return x.clone()
    pixels = x.float()
    value = pixels.amax(dim=1, keepdim=True)
    span = value - pixels.amin(dim=1, keepdim=True)
    saturation = (span / value.clamp(min=1) * factor + summand).clamp_(0, 1)
    red = torch.tensor([0.0, 1.0, 1.0], device=x.device)[:, None, None]
    distance = torch.where(span > 0, (value - pixels) / span.clamp(min=1), red)
    return to_bytes(value * (1 - saturation * distance))
