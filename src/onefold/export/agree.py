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
        raise ValueError(f"{what}: expected answers {list(expected.shape)}, got {list(found.shape)}; nothing is kept")
    apart = float((found - expected).abs().max() / expected.abs().max().clamp(min=1e-6))
    if not apart <= CLOSE:
        raise ValueError(
            f"{what}: its answers are {apart:.1%} of the largest logit from the network's, for the same inputs; "
            "nothing is kept, so take another format"
        )
    how = "with the same bits" if apart == 0 else f"its logits within {apart:.0e} of the largest"
    return f"{what}, read again, answers {len(x)} inputs as the network does, {how}"
