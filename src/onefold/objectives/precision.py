"""The precision the objectives are formed in."""

from __future__ import annotations

import torch
from torch import Tensor


def widest(values: Tensor) -> Tensor:
    """`values` in float64, or in float32 on a device that has no float64 (Apple's MPS).

    For what is constant in the gradient and small to compute, but loses digits by cancellation.
    """
    return values.to(torch.float32 if values.device.type == "mps" else torch.float64)
