"""The precision in which objectives are computed."""

from __future__ import annotations

import torch
from torch import Tensor


def widest(values: Tensor) -> Tensor:
    """`values` in float64, or in float32 on a device without float64 (Apple's MPS).

    For small computations that need no gradient but lose digits by cancellation.
    """
    return values.to(torch.float32 if values.device.type == "mps" else torch.float64)
