"""Fixed cells for values of unknown range: the leading bits of a float, which order as the float does.

A histogram over them has a relative resolution, the same near 1e-6 as near 1, and needs no range beforehand.
"""

from __future__ import annotations

import torch
from torch import Tensor

# Signed cells tell magnitudes from 2^-32 to 2^32 apart; the outermost cells take everything beyond.
_LOWEST, _OCTAVES = -32, 64


def magnitude_cells(magnitude: Tensor, *, lowest: int, octaves: int, bits: int) -> Tensor:
    """Cells 0 to `octaves * 2**bits - 1` of values >= 0: `2**bits` cells from each power of two to the next.

    The first cell begins at `2**lowest` and also takes all that is below; the last also takes all above.
    """
    pattern = magnitude.float().view(torch.int32)  # of a float >= 0, grows with it
    start = (127 + lowest) << 23
    return (pattern - start).clamp(0, (octaves << 23) - 1) >> (23 - bits)


def signed_cells(values: Tensor, cells: int) -> Tensor:
    """Cells 0 to `cells - 1` (a power of two) of values of either sign, in the order of the values."""
    bits = (cells // (2 * _OCTAVES)).bit_length() - 1
    magnitude = magnitude_cells(values.abs(), lowest=_LOWEST, octaves=_OCTAVES, bits=bits)
    half = cells // 2
    return torch.where(values < 0, half - 1 - magnitude, half + magnitude)
