"""Which rows of a batch that several processes share a process works on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """The rows of process `rank`, where the processes have `counts` of them, one after the other.

    A process whose part is empty works on a stand-in that counts for nothing: every process takes every step, and no
    network ever sees an empty batch.
    """

    counts: tuple[int, ...]
    rank: int

    @property
    def whole(self) -> int:
        """Examples of the batch, over all processes."""
        return sum(self.counts)

    @property
    def counted(self) -> int:
        """Examples of this process."""
        return self.counts[self.rank]

    @property
    def rows(self) -> int:
        """Rows this process works on, a stand-in included."""
        return max(self.counted, 1)

    @property
    def first(self) -> int:
        """Where they begin; a stand-in takes the draws of the batch's first."""
        return sum(self.counts[: self.rank]) if self.counted else 0

    @property
    def share(self) -> float:
        """What the mean over this part weighs in the mean over the batch."""
        return self.counted / self.whole

    def pieces(self, wanted: int) -> list[Part]:
        """The batch in `wanted` pieces, or fewer, so that every process has something in each; as many for all."""
        count = max(1, min(wanted, *self.counts))
        each = [piece_sizes(rows, count) for rows in self.counts]
        return [Part(tuple(sizes[k] for sizes in each), self.rank) for k in range(count)]


def piece_sizes(rows: int, count: int) -> list[int]:
    """Sizes that differ by one at most, the larger ones first, as `Tensor.tensor_split` makes them."""
    return [rows // count + (k < rows % count) for k in range(count)]
