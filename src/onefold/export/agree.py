"""Checks that an exported file gives the same outputs as the network."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

CLOSE = 1e-3  # relative to the largest logit: more than different kernels' rounding, less than different networks


@torch.no_grad()
def check_agreement(expected: Tensor, answer: Callable[[Tensor], Tensor], x: Tensor, what: str) -> str:
    """A sentence on how far apart the outputs are; a ValueError if they cannot be those of the same network."""
    found = answer(x)
    if found.shape != expected.shape:
        raise ValueError(
            f"{what}: expected outputs {list(expected.shape)}, got {list(found.shape)}; nothing was written"
        )
    apart = float((found - expected).abs().max() / expected.abs().max().clamp(min=1e-6))
    if not apart <= CLOSE:
        raise ValueError(
            f"{what}: for the same inputs, its outputs differ from the network's by {apart:.1%} of the largest logit; "
            "nothing was written, choose another format"
        )
    how = "bit by bit" if apart == 0 else f"up to {apart:.0e} of the largest logit"
    return f"{what} was read back and gives the network's outputs for {len(x)} inputs, {how}"
