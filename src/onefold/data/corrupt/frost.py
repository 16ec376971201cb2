"""Frost: a pane of ice crystals over the image.

The benchmark crops its frost from five photographs, which are not part of this package. Here, five panes are generated:
fern-like crystals on a cloudy background, from dark blue to white. Like the photographs they are the same for every
seed; the seed chooses the pane and the crop.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from onefold.data.corrupt.colour import grey
from onefold.data.corrupt.draws import Draws
from onefold.data.corrupt.linear import to_bytes

PANES = 5
SIDE = 1024  # pixels of a pane, about as in the photographs; it wraps around at the border
DARK, LIGHT = (28.0, 52.0, 84.0), (236.0, 244.0, 252.0)
FERNS, POINTS, RIBS = 130, 256, 40  # ferns per pane, points per line, lines that branch off a stem on each side


def frost(x: Tensor, draws: Draws, kept: float, weight: float, size: float) -> Tensor:
    """kept x + weight f, where f is a crop of a pane that is scaled by `size`."""
    panes = scaled_panes(size).to(x.device)  # [PANES, 3, S, S]
    side, (height, width) = panes.shape[-1], x.shape[-2:]
    which = draws.integers(0, PANES, 1)
    corner = draws.integers(0, side, 2)
    rows = (corner[:, :1] + torch.arange(height, device=x.device)) % side  # [B, H]
    columns = (corner[:, 1:] + torch.arange(width, device=x.device)) % side
    part = panes[which[:, :, None], :, rows[:, :, None], columns[:, None, :]]  # [B, H, W, 3]
    part = part.permute(0, 3, 1, 2).float()
    return to_bytes(kept * x + weight * (part if x.shape[1] == 3 else grey(part)))


@lru_cache(maxsize=4)
def scaled_panes(size: float) -> Tensor:
    """All panes `[PANES, 3, S, S]`, uint8, scaled down without smoothing, as the benchmark does its photographs."""
    panes = all_panes()
    side = int(SIDE * size)
    if side == SIDE:
        return panes
    return to_bytes(F.interpolate(panes.float(), (side, side), mode="bilinear", align_corners=False))


@lru_cache(maxsize=1)
def all_panes() -> Tensor:
    draws = Draws(0, "panes of frost", torch.arange(PANES))
    ground = cloud(draws)
    crystals = ferns(draws)
    # Crystals are light, and the background is lighter where the pane is frozen through.
    light = (0.08 + 0.42 * ground + 0.6 * crystals * (0.4 + 0.6 * ground)).clamp(0, 1)[:, None]
    dark, bright = (torch.tensor(colour)[:, None, None] for colour in (DARK, LIGHT))
    return to_bytes(dark + (bright - dark) * light)


def cloud(draws: Draws) -> Tensor:
    """`[PANES, SIDE, SIDE]` in [0, 1]: noise whose amplitude falls with frequency^1.5, through a logistic curve."""
    noise = torch.fft.rfft2(draws.normal(SIDE, SIDE))
    field = torch.fft.irfft2(noise * frequency().clamp(min=1.0) ** -1.5, s=(SIDE, SIDE))
    return torch.sigmoid(1.5 * field / field.std(dim=(1, 2), keepdim=True))


def frequency() -> Tensor:
    """Frequencies `[SIDE, SIDE // 2 + 1]`, in waves per pane."""
    down, across = torch.fft.fftfreq(SIDE) * SIDE, torch.fft.rfftfreq(SIDE) * SIDE
    return torch.hypot(down[:, None], across)


def ferns(draws: Draws) -> Tensor:
    """`[PANES, SIDE, SIDE]` in [0, 1]: curved stems with ribs at 60 degrees on both sides, shorter toward the tip."""
    place = draws.uniform(0, SIDE, FERNS, 2)
    heading = draws.uniform(0, 2 * math.pi, FERNS, 1)
    bend = draws.uniform(-1, 1, FERNS, 1)
    length = draws.uniform(0.06, 0.36, FERNS, 1) * SIDE
    along = torch.linspace(0, 1, POINTS)
    angle = heading + bend * along  # [PANES, FERNS, POINTS]
    stems = place[..., None, :] + steps(angle, length / POINTS)
    # Ribs start at points of the stem; their lengths vary, or they would look drawn with a ruler.
    start = torch.linspace(0, POINTS - 1, RIBS).long()
    reach = 0.35 * length[..., None] * (1 - along[start])[:, None] * draws.uniform(0.3, 1, FERNS, RIBS, 2)
    turn = torch.tensor([-math.pi / 3, math.pi / 3])
    rib_angle = (angle[..., start, None] + turn)[..., None].expand(-1, -1, -1, -1, POINTS // 4)
    ribs = stems[..., start, None, None, :] + steps(rib_angle, reach[..., None] / (POINTS // 4))
    points = torch.cat([stems.flatten(1, -2), ribs.flatten(1, -2)], dim=1).long() % SIDE  # [PANES, points, 2]
    hits = torch.zeros(PANES, SIDE * SIDE)
    hits.scatter_add_(1, points[..., 0] * SIDE + points[..., 1], torch.ones(points.shape[:2]))
    # Two widths: sharp lines, and the rime around them.
    hits = hits.unflatten(1, (SIDE, SIDE))
    spectrum, waves = torch.fft.rfft2(hits), frequency() * (2 * math.pi / SIDE)
    thin, wide = (torch.fft.irfft2(spectrum * torch.exp(-0.5 * (waves * s) ** 2), s=(SIDE, SIDE)) for s in (1.0, 5.0))
    return 1 - torch.exp(-(1.6 * thin + 0.3 * wide).clamp(min=0))


def steps(angle: Tensor, pace: Tensor) -> Tensor:
    """The path `[..., POINTS, 2]` of a point that moves by `pace` in the direction of each angle."""
    return torch.stack([angle.sin(), angle.cos()], dim=-1).mul(pace[..., None]).cumsum(dim=-2)
