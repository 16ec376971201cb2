"""Fixed histogram cells for values of unknown range: the leading bits of a float, which sort as the float does.

A histogram over them has the same relative resolution near 1e-6 as near 1, and needs no range in advance.
"""

from __future__ import annotations

import torch
from torch import Tensor

# Signed cells resolve magnitudes from 2^-32 to 2^32; the outermost cells take everything beyond.
_LOWEST, _OCTAVES = -32, 64


def magnitude_cells(magnitude: Tensor, *, lowest: int, octaves: int, bits: int) -> Tensor:
    """Cell indices, 0 to `octaves * 2**bits - 1`, of values >= 0: `2**bits` cells from each power of two to the next.

    The first cell starts at `2**lowest` and also takes everything below; the last also takes everything above.
    """
    pattern = magnitude.float().view(torch.int32)  # for floats >= 0 the bit pattern grows with the value
    start = (127 + lowest) << 23
    return (pattern - start).clamp(0, (octaves << 23) - 1) >> (23 - bits)


def signed_cells(values: Tensor, cells: int) -> Tensor:
    """Cell indices, 0 to `cells - 1` (`cells` is a power of two), of values of either sign, in order of the values."""
    bits = (cells // (2 * _OCTAVES)).bit_length() - 1
    magnitude = magnitude_cells(values.abs(), lowest=_LOWEST, octaves=_OCTAVES, bits=bits)
    half = cells // 2
    return torch.where(values < 0, half - 1 - magnitude, half + magnitude)
