"""Elastic transform against scipy.ndimage.map_coordinates with the same draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.ndimage
import torch
from torch import Tensor

from onefold.data.corrupt import corrupt
from onefold.data.corrupt.draws import Draws

ndimage: Any = scipy.ndimage  # its names are made when it is imported, so none are known to a type checker

Array = np.ndarray[Any, np.dtype[Any]]
SEED = 9


def origin_of(moves: Array, height: int, width: int) -> Callable[[Array, Array], tuple[Array, Array]]:
    """Where (x, y) comes from: the affine map of three points, by least squares, inverted as a 3 x 3 matrix."""
    reach = min(height, width) // 3
    middle = np.array([width // 2, height // 2], dtype=float)
    points = np.stack([middle + reach, middle + np.array([reach, -reach]), middle - reach])
    homogeneous = np.concatenate([points, np.ones((3, 1))], axis=1)
    forward, *_ = np.linalg.lstsq(homogeneous, points + moves, rcond=None)  # [3, 2]
    matrix = np.eye(3)
    matrix[:2] = forward.T
    back = np.linalg.inv(matrix)
    return lambda x, y: (back[0, 0] * x + back[0, 1] * y + back[0, 2], back[1, 0] * x + back[1, 1] * y + back[1, 2])


@pytest.mark.parametrize(
    ("shape", "severity", "parts"),
    [
        ((32, 32), 1, (0, 0, 0.08)),
        ((32, 32), 2, (0.05, 0.2, 0.07)),
        ((32, 32), 5, (0.1, 0.03, 0.03)),
        ((40, 56), 3, (0.08, 0.06, 0.06)),
        ((64, 64), 5, (0.16, 0.03, 0.02)),
        ((224, 224), 1, (2 * 244 / 224, 0.7 * 244 / 224, 0.1 * 244 / 224)),
        ((224, 224), 5, (0.12 * 244 / 224, 0.01 * 244 / 224, 0.02 * 244 / 224)),
    ],
)
def test_elastic_transform(
    shape: tuple[int, int], severity: int, parts: tuple[float, float, float], pictures: Callable[..., Tensor]
) -> None:
    x = pictures(*shape)[[0, 1, 6]]
    height, width = shape
    strength, deviation, reach = (part * min(shape) for part in parts)
    draws = Draws(SEED, f"elastic_transform {severity}", torch.arange(len(x)))
    moves = draws.uniform(-1, 1, 3, 2).double().numpy() * reach
    noise = draws.uniform(-1, 1, 2, height, width).double().numpy() if strength else None
    rows, columns = np.mgrid[:height, :width].astype(float)
    expected = np.empty(x.shape)
    for i, image in enumerate(x.double().numpy()):
        across, down = origin_of(moves[i], height, width)(columns, rows)
        for c, channel in enumerate(image):
            warped = ndimage.map_coordinates(channel, [down, across], order=1, mode="mirror")
            if noise is not None:
                dx, dy = (
                    ndimage.gaussian_filter(n, deviation, mode="reflect", truncate=3) * strength for n in noise[i]
                )
                warped = ndimage.map_coordinates(warped, [rows + dy, columns + dx], order=1, mode="reflect")
            expected[i, c] = warped
    ours = corrupt(x, "elastic_transform", severity, SEED).numpy().astype(float)
    # Places are in float32: with steps of up to 255 between pixels that is a few hundredths of a grey level.
    assert (ours >= np.floor(expected - 0.05)).all()
    assert (ours <= np.floor(expected + 0.05)).all()
