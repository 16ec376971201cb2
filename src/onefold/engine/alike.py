"""Whether a network still computes the same, once something about how it does so has changed."""

from __future__ import annotations

import torch
from torch import Tensor, nn

APART = 1e-3  # how far answers may be in full precision, as a part of the largest
NOISE = 0.1  # deviation of what takes the place of zeros


def close(found: Tensor, expected: Tensor, net: nn.Module) -> bool:
    """As numbers are that were summed in another order, in the precision of a network."""
    coarsest = max((torch.finfo(p.dtype).eps for p in net.parameters() if p.is_floating_point()), default=0.0)
    return bool((found - expected).abs().max() <= (APART + 4 * coarsest) * expected.abs().max())


@torch.no_grad()
def fill_zeros(*copies: nn.Module) -> None:
    """Weights that begin as zeros, such as a head's, hide what all that lies before them computes: in copies of a
    network that are compared they get the same noise."""
    draws = torch.Generator().manual_seed(0)
    for first, *others in zip(*(copy.parameters() for copy in copies), strict=True):
        if first.is_floating_point() and not first.any():
            first.copy_(NOISE * torch.randn(first.shape, generator=draws))
            for other in others:
                other.copy_(first)
