"""Draws for a batch that several processes share: all draw for the whole batch and take their part."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from onefold.engine.distributed.part import Part
from onefold.perturb import Draws


class SharedDraws(Draws):
    """The numbers one process would have drawn. All processes have to draw in step from generators in the same state.

    `generator` is None for torch's global one; a network that draws by itself needs that one for its own.
    """

    def __init__(self, part: Callable[[], Part | None], generator: torch.Generator | None = None) -> None:
        self.part, self.generator = part, generator

    def integer(self, low: int, high: int, device: torch.device) -> Tensor:
        return torch.randint(low, high, (1,), device=device, generator=self.generator)

    def normal(self, like: Tensor) -> Tensor:
        first, rows, whole = self.place(like.shape[0])
        # In the memory format of the images: numbers are drawn in the order of the memory.
        last = like.dim() == 4 and not like.is_contiguous() and like.is_contiguous(memory_format=torch.channels_last)
        layout = torch.channels_last if last else torch.contiguous_format
        shape = (whole, *like.shape[1:])
        drawn = torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=layout)
        return drawn.normal_(generator=self.generator)[first : first + rows]

    def uniform(self, shape: Sequence[int], like: Tensor) -> Tensor:
        first, rows, whole = self.place(shape[0])
        drawn = torch.rand((whole, *shape[1:]), dtype=like.dtype, device=like.device, generator=self.generator)
        return drawn[first : first + rows]

    def place(self, rows: int) -> tuple[int, int, int]:
        """Where the rows lie in the whole batch; outside of a batch everybody is asked about the same."""
        part = self.part()
        if part is None:
            return 0, rows, rows
        assert rows == part.rows, "draws are for the part that is being worked on"
        return part.first, part.rows, part.whole
