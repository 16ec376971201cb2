"""Whether what was written answers as the network did."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

CLOSE = 1e-3  # of the largest logit: other kernels round otherwise, other networks are further away


@torch.no_grad()
def check_agreement(expected: Tensor, answer: Callable[[Tensor], Tensor], x: Tensor, what: str) -> str:
    """How far apart the answers are, in a sentence; a ValueError where they are not those of the same network."""
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
