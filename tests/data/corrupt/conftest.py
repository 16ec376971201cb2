from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

Array = np.ndarray[Any, np.dtype[Any]]
Pictures = Callable[..., Tensor]


@pytest.fixture
def pictures() -> Pictures:
    """uint8 `[N, C, H, W]`: noise, smooth colours, a chequerboard, black, white, one colour, a gradient."""

    def make(height: int, width: int, channels: int = 3, count: int = 7) -> Tensor:
        numbers = np.random.default_rng([height, width, channels])
        noise = numbers.integers(0, 256, (channels, height, width))
        rows, columns = np.mgrid[:height, :width]
        waves = [127 + 120 * np.sin(rows / (3 + k) + columns / (5 - k) + k) for k in range(channels)]
        board = np.broadcast_to((rows // 3 + columns // 3) % 2 * 200 + 20, (channels, height, width))
        black, white = np.zeros((channels, height, width)), np.full((channels, height, width), 255)
        plain = np.broadcast_to(np.array([200, 30, 90])[:channels, None, None], black.shape)
        gradient = np.broadcast_to(255 * rows / max(height - 1, 1), black.shape)
        kinds = [noise, np.stack(waves), board, black, white, plain, gradient]
        return torch.from_numpy(np.stack([kinds[i % len(kinds)] for i in range(count)]).astype(np.uint8))

    return make


@pytest.fixture
def cut() -> Callable[[Tensor, Array], None]:
    """Asserts that bytes are real values cut to whole numbers, whatever rounding does to a value next to one."""

    def check(ours: Tensor, values: Array, slack: float = 2e-3) -> None:
        clipped = np.clip(values, 0, 255)
        assert ours.dtype == torch.uint8
        assert ours.shape == values.shape
        given = ours.numpy().astype(float)
        assert (given >= np.floor(clipped - slack)).all()
        assert (given <= np.floor(clipped + slack)).all()

    return check
