"""How a kernel divides its work."""

from __future__ import annotations

from torch import Tensor

TILE = 8192  # elements a program holds at once
PROGRAMS = 256  # about two for each processor of an H100 or H200; a reduction has as many parts


class Grid:
    """`[M, rows, C]` among programs: each goes through a chunk of a member's rows, for a block of channels, in tiles.

    A kernel that sums leaves its sums in `splits` parts, which few programs reduce afterwards; one that does not may
    have more programs.
    """

    def __init__(self, y: Tensor, members: int, *, sums: bool) -> None:
        self.channels = y.shape[1]
        self.rows = y.numel() // (members * self.channels)
        tile_channels = min(power_of_two(self.channels), 64)
        tile_rows = TILE // tile_channels
        blocks = -(-self.channels // tile_channels)
        tiles = -(-self.rows // tile_rows)
        splits = max(1, (PROGRAMS if sums else 4 * PROGRAMS) // (members * blocks))
        chunk = -(-tiles // min(splits, tiles)) * tile_rows
        self.splits = -(-self.rows // chunk)
        self.programs = (members, self.splits, blocks)
        self.extent = (self.rows, self.channels, chunk)
        self.sizes = {"ROWS": tile_rows, "CHANNELS": tile_channels, "num_warps": 8}
        self.reducers = (-(-self.channels // 16),)
        self.reduction = {
            "MEMBERS": power_of_two(members),
            "SPLITS": max(16, power_of_two(self.splits)),
            "CHANNELS": 16,
            "num_warps": 4,
        }


def power_of_two(n: int) -> int:
    """The next one: sizes inside a kernel are such."""
    return 1 << (n - 1).bit_length()
