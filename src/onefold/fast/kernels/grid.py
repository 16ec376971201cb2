"""How a kernel divides its work."""

from __future__ import annotations

from torch import Tensor

TILE = 2048  # elements that a program of 256 threads holds at once: few registers, so many programs per SM
SUMMED = 4096  # the same for 128 threads that sum two-byte elements: fewer programs, each with more in flight
WHOLE = 16  # multiples of this many channels are prefetched; otherwise a tile is twice as large, with twice the threads
REDUCED = 2048  # sums the last program adds up at once: more would cost registers, which all programs then reserve
SUM_CHANNELS = 32  # channels of a summing program, 64 bytes of a row: few, so that the last one has few sums to add up
STAGES = 4  # tiles in flight in a summing program
PROGRAMS = 132  # summing programs: one for each SM of an H100 or H200; a reduction has as many parts
CHANNELS = 16  # channels per program of a kernel that only makes a table


class Grid:
    """Divides `[M, rows, C]` among programs: each processes a chunk of a member's rows, for a block of channels, in
    tiles.

    A kernel that sums leaves its sums in `splits` parts, which the last program of a block reduces; a kernel that does
    not sum may have more programs.
    """

    def __init__(self, y: Tensor, members: int, *, sums: bool) -> None:
        self.channels = y.shape[1]
        self.rows = y.numel() // (members * self.channels)
        tile_channels = min(power_of_two(self.channels), SUM_CHANNELS if sums else 64)
        # Tiles in flight are in shared memory, of which smaller devices have 100 KB: the wider the elements, the fewer.
        ahead = sums and self.channels % WHOLE == 0
        summed = (1 if ahead else 2) * SUMMED * 2 // y.element_size()
        tile_rows = max((summed if sums else TILE) // tile_channels, 1)
        self.blocks = -(-self.channels // tile_channels)
        tiles = -(-self.rows // tile_rows)
        splits = max(1, (PROGRAMS if sums else 4 * PROGRAMS) // (members * self.blocks))
        chunk = -(-tiles // min(splits, tiles)) * tile_rows
        self.splits = -(-self.rows // chunk)
        self.programs = (members, self.splits, self.blocks)
        self.extent = (self.rows, self.channels, chunk)
        self.sizes = {"ROWS": tile_rows, "CHANNELS": tile_channels, "num_warps": 4 if ahead else 8}
        self.stages = STAGES if ahead else 1
        crowd = power_of_two(members)
        self.reduction = {"MEMBERS": crowd, "PARTS": max(1, REDUCED // (crowd * tile_channels)), "STAGES": self.stages}
        self.tables = (-(-self.channels // CHANNELS),)
        self.table = {"MEMBERS": crowd, "CHANNELS": CHANNELS, "num_warps": 4}
        self.table_reduction = {"PARTS": max(1, REDUCED // (crowd * CHANNELS))}


def power_of_two(n: int) -> int:
    """The next power of two from n on, because sizes inside a kernel must be powers of two."""
    return 1 << (n - 1).bit_length()
