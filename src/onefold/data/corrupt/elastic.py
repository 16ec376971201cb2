"""Elastic transform: a random affine map, then random smooth displacements."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from onefold.data.corrupt.draws import Draws
from onefold.data.corrupt.linear import smoothed, to_bytes


def elastic_transform(x: Tensor, draws: Draws, height_part: float, deviation_part: float, reach_part: float) -> Tensor:
    """The `_part` arguments are fractions of the shorter side. The two maps interpolate linearly, one after the other,
    as in the benchmark."""
    height, width = x.shape[-2:]
    side = min(height, width)
    matrix = affine(draws.uniform(-1, 1, 3, 2).double() * (reach_part * side), height, width)  # [B, 3, 2]
    rows, columns = torch.meshgrid(
        torch.arange(height, device=x.device, dtype=torch.float64),
        torch.arange(width, device=x.device, dtype=torch.float64),
        indexing="ij",
    )
    targets = torch.stack([columns, rows, torch.ones_like(rows)], dim=-1)  # [H, W, 3]
    pixels = sampled(x.float(), (targets.flatten(0, 1) @ matrix).unflatten(1, (height, width)), edge_twice=False)
    if height_part:
        noise = draws.uniform(-1, 1, 2, height, width)
        moves = smoothed(noise, deviation_part * side, truncate=3, edge_twice=True) * (height_part * side)
        pixels = sampled(pixels, targets[..., :2] + moves.permute(0, 2, 3, 1), edge_twice=True)
    return to_bytes(pixels)


def affine(moves: Tensor, height: int, width: int) -> Tensor:
    """`[B, 3, 2]`: (x, y, 1) times this matrix is where the pixel comes from, if three points around the centre move by
    `moves`.

    `moves` are `[B, 3, 2]`, x before y. They define the forward map; this is its inverse, from target to origin.
    """
    x, y, reach = width // 2, height // 2, min(height, width) // 3
    corners = [[x + reach, y + reach], [x + reach, y - reach], [x - reach, y - reach]]
    points = torch.tensor(corners, dtype=torch.float64, device=moves.device)
    ends = torch.cat([points + moves, torch.ones_like(moves[..., :1])], dim=-1)  # [B, 3, 3]
    matrix: Tensor = torch.linalg.solve(ends, points.expand(len(moves), -1, -1))
    return matrix


def sampled(pixels: Tensor, places: Tensor, *, edge_twice: bool) -> Tensor:
    """Values at positions `[B, H, W, 2]` (x, y) in pixels, interpolated linearly. Beyond the border the image is
    mirrored, with or without repeating the edge."""
    height, width = pixels.shape[-2:]
    size = torch.tensor([width, height], dtype=torch.float64, device=pixels.device)
    # grid_sample's range of -1 to 1 spans either the outer edges of the image or the centres of its outer pixels.
    grid = (2 * places + 1) / size - 1 if edge_twice else 2 * places / (size - 1).clamp(min=1) - 1
    mirrored: Tensor = F.grid_sample(
        pixels, grid.float(), mode="bilinear", padding_mode="reflection", align_corners=not edge_twice
    )
    return mirrored
