"""How a batch is split among several processes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """The rows of process `rank` in a batch of which the processes have consecutive parts of `counts` rows.

    A process whose part is empty works on a one-row stand-in with weight zero, so that every process takes every step
    and no network ever sees an empty batch.
    """

    counts: tuple[int, ...]
    rank: int

    @property
    def whole(self) -> int:
        """Examples in the batch, over all processes."""
        return sum(self.counts)

    @property
    def counted(self) -> int:
        """Examples of this process."""
        return self.counts[self.rank]

    @property
    def rows(self) -> int:
        """Rows this process works on, including a stand-in."""
        return max(self.counted, 1)

    @property
    def first(self) -> int:
        """The index of the first of them in the batch; a stand-in uses the random numbers of the batch's first row."""
        return sum(self.counts[: self.rank]) if self.counted else 0

    @property
    def share(self) -> float:
        """The weight of this part's mean in the mean over the batch."""
        return self.counted / self.whole

    def pieces(self, wanted: int) -> list[Part]:
        """The batch in `wanted` pieces, or fewer so that no process has an empty piece; the same number for all."""
        count = max(1, min(wanted, *self.counts))
        each = [piece_sizes(rows, count) for rows in self.counts]
        return [Part(tuple(sizes[k] for sizes in each), self.rank) for k in range(count)]


def piece_sizes(rows: int, count: int) -> list[int]:
    """Sizes that differ by at most one, the larger first, as in `Tensor.tensor_split`."""
    return [rows // count + (k < rows % count) for k in range(count)]
