"""Whether a network still computes the same, once something about how it does so has changed."""

from __future__ import annotations

import torch
from torch import Tensor, nn

APART = 1e-3  # how far answers may be in full precision, as a part of the largest


def close(found: Tensor, expected: Tensor, net: nn.Module) -> bool:
    """As numbers are that were summed in another order, in the precision of a network."""
    coarsest = max(torch.finfo(p.dtype).eps for p in net.parameters() if p.is_floating_point())
    return bool((found - expected).abs().max() <= (APART + 4 * coarsest) * expected.abs().max())
