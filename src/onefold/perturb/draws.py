"""The random numbers of a perturbation: some belong to the batch, some to each of its images."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class Draws:
    """Draws on the device of what they are for, from torch's global generator.

    Where several processes share a batch, the engine gives another one: what belongs to the batch is then the same for
    all of them, and what belongs to an image is what one process would have drawn for it.
    """

    def integer(self, low: int, high: int, device: torch.device) -> Tensor:
        """A number from `low` to `high` - 1 for the whole batch, `[1]`."""
        return torch.randint(low, high, (1,), device=device)

    def normal(self, like: Tensor) -> Tensor:
        """N(0, 1) for every entry of images `[B, ...]`."""
        return torch.randn_like(like)

    def uniform(self, shape: Sequence[int], like: Tensor) -> Tensor:
        """U(0, 1) for every entry of a shape `[B, ...]`, in the type and on the device of `like`."""
        return torch.rand(tuple(shape), dtype=like.dtype, device=like.device)


DRAWS = Draws()
