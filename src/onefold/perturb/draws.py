"""The random numbers of a perturbation: some are drawn per batch, some per image."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class Draws:
    """Draws from torch's global generator, on the device where the numbers are used.

    When several processes share a batch, the engine passes a different implementation: numbers per batch are then the
    same in all of them, and numbers per image are what a single process would have drawn for that image.
    """

    def integer(self, low: int, high: int, device: torch.device) -> Tensor:
        """One integer from `low` to `high` - 1 for the whole batch, `[1]`."""
        return torch.randint(low, high, (1,), device=device)

    def normal(self, like: Tensor) -> Tensor:
        """N(0, 1) for every element of images `[B, ...]`."""
        return torch.randn_like(like)

    def uniform(self, shape: Sequence[int], like: Tensor) -> Tensor:
        """U(0, 1) for every element of a shape `[B, ...]`, with the dtype and device of `like`."""
        return torch.rand(tuple(shape), dtype=like.dtype, device=like.device)


DRAWS = Draws()
