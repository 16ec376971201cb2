"""How a kernel divides its work."""

from __future__ import annotations

from torch import Tensor

TILE = 2048  # elements that a program of 256 threads holds at once: few registers, many programs to a processor
SUMMED = 4096  # the same where 128 threads sum and an element has two bytes: fewer programs, each with more under way
WHOLE = 16  # channels of which a multiple is copied ahead; else a tile is twice as large, with twice the threads
REDUCED = 2048  # sums that the last program adds up at once: more take registers that all programs then have
SUM_CHANNELS = 32  # of a program that sums: 64 bytes of a row; the last one of a block has the fewer sums to add up
STAGES = 4  # tiles under way in a program that sums
PROGRAMS = 132  # that sum: one for each processor of an H100 or H200; a reduction has as many parts
CHANNELS = 16  # of a table that a kernel of its own makes


class Grid:
    """`[M, rows, C]` among programs: each goes through a chunk of a member's rows, for a block of channels, in tiles.

    A kernel that sums leaves its sums in `splits` parts, which the last program of a block reduces; one that does not
    may have more programs.
    """

    def __init__(self, y: Tensor, members: int, *, sums: bool) -> None:
        self.channels = y.shape[1]
        self.rows = y.numel() // (members * self.channels)
        tile_channels = min(power_of_two(self.channels), SUM_CHANNELS if sums else 64)
        # Tiles under way lie in shared memory, of which smaller devices have 100 KB: wide elements are the fewer.
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
    """The next one: sizes inside a kernel are such."""
    return 1 << (n - 1).bit_length()
