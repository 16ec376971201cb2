"""Random numbers for a batch shared by several processes: each draws for the whole batch and takes its part."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from onefold.engine.distributed.part import Part
from onefold.perturb import Draws


class SharedDraws(Draws):
    """The numbers a single process would have drawn. All processes must make the same draws from generators in the same
    state.

    `generator` is None for torch's global one; a network with random numbers of its own (dropout) uses the global one,
    and this then needs another.
    """

    def __init__(self, part: Callable[[], Part | None], generator: torch.Generator | None = None) -> None:
        self.part, self.generator = part, generator

    def integer(self, low: int, high: int, device: torch.device) -> Tensor:
        return torch.randint(low, high, (1,), device=device, generator=self.generator)

    def normal(self, like: Tensor) -> Tensor:
        first, rows, whole = self.place(like.shape[0])
        # In the memory format of the images, because numbers are drawn in memory order.
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
        """First row, number of rows, and size of the whole batch; outside a batch all processes see the same inputs."""
        part = self.part()
        if part is None:
            return 0, rows, rows
        assert rows == part.rows, "draws are for the part that is being worked on"
        return part.first, part.rows, part.whole
