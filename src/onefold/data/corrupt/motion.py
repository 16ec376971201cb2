"""Motion blur as defined by ImageMagick, with a different direction for each image."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from onefold.data.corrupt.draws import Draws
from onefold.data.corrupt.linear import padded

NEGLIGIBLE = 1e-7  # weights below this change no bit of a sum of pixels


def motion_blur(x: Tensor, draws: Draws, radius: float, deviation: float) -> Tensor:
    """Blurs along a line at -45 to 45 degrees."""
    return moved(x, draws.uniform(-45, 45, 1)[:, 0], radius, deviation)


def moved(x: Tensor, degrees: Tensor, radius: float, deviation: float) -> Tensor:
    """sum_i k_i x(p + o_i): k is half a Gaussian at i = 0, ..., 2 ceil(radius), o_i the pixel nearest to i steps along
    the angle. Edge pixels are repeated beyond the border; the result is rounded to the nearest uint8."""
    weights = motion_weights(radius, deviation)
    steps = torch.arange(len(weights), device=x.device)
    angle = degrees.double().mul(math.pi / 180)[:, None]
    across = (steps * angle.cos() - 0.5).ceil().long()  # [B, taps]
    down = (steps * angle.sin() - 0.5).ceil().long()
    pad, (height, width) = len(weights), x.shape[-2:]
    wide = padded(x, pad, "nearest").float()
    crops = wide.unfold(2, height, 1).unfold(3, width, 1)  # a view of all possible shifts
    images = torch.arange(len(x), device=x.device)
    blurred = weights[0] * x
    for tap, weight in enumerate(weights[1:], start=1):
        blurred.add_(crops[images, :, pad + down[:, tap], pad + across[:, tap]], alpha=weight)
    return (blurred + 0.5).clamp_(0, 255).to(torch.uint8)


def motion_weights(radius: float, deviation: float) -> list[float]:
    """Half a Gaussian with sum one, without its negligible tail."""
    raw = [math.exp(-(step**2) / (2 * deviation**2)) for step in range(2 * math.ceil(radius) + 1)]
    return [weight / sum(raw) for weight in raw if weight / sum(raw) > NEGLIGIBLE]
