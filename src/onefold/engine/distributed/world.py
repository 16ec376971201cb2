"""The processes that train together, as the loop sees them; here the case of one that is alone."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from onefold.engine.keeping.pack import generator_states, set_generator_states
from onefold.metrics.accumulator import Accumulator
from onefold.perturb import DRAWS, Draws

Value = TypeVar("Value")
Batch = tuple[Tensor, Tensor]


class World:
    """One process, which has nobody to ask and nothing to wait for."""

    rank = 0
    size = 1
    local_rank = 0

    @property
    def draws(self) -> Draws:
        """What perturbations draw from."""
        return DRAWS

    # A batch and its parts

    def take(self, x: Tensor, labels: Tensor, counts: Sequence[int] | None) -> Batch:  # noqa: ARG002
        """This process's part of the batch about to be worked on; `counts` are everybody's, where they are known."""
        return x, labels

    def rest(self) -> None:
        """There is no batch yet, or none any more: whoever is asked about something is asked about all of it."""

    def examples(self, x: Tensor) -> int:
        """How many the batch has, over all processes."""
        return x.shape[0]

    def pieces(self, x: Tensor, labels: Tensor, wanted: int) -> Iterator[tuple[Tensor, Tensor, float]]:
        """The part in pieces, each with what its mean weighs in the mean over the whole batch."""
        for part, answers in zip(x.chunk(wanted), labels.chunk(wanted), strict=True):
            yield part, answers, part.shape[0] / x.shape[0]

    def smallest_piece(self, batch: int, wanted: int) -> int:
        """The fewest examples over which BatchNorm will form its statistics in a batch of so many."""
        return min(part.shape[0] for part in torch.empty(batch).chunk(wanted))

    def summed(self, parameters: Sequence[nn.Parameter], loss: Tensor) -> Tensor:  # noqa: ARG002
        """Adds up the gradients of all processes, in place, and returns the sum of the losses."""
        return loss

    def batch_key(self, x: Tensor, labels: Tensor) -> tuple[Any, ...]:
        """What a captured step has to be captured for: who sees another one sees it together with all the others."""
        return x.shape, x.dtype, x.stride(), labels.shape

    # BatchNorm's statistics

    @property
    def counted(self) -> bool:
        """Whether this process's rows count: those of a stand-in do not."""
        return True

    def rows_of_all(self, row: Tensor) -> Tensor:
        """Everybody's tensor of one shape, one below the other: `[W, ...]`."""
        return row[None]

    def sum_(self, tensors: Sequence[Tensor]) -> None:
        """Sums over all processes, in place."""

    # Random numbers

    @property
    def generators(self) -> list[torch.Generator]:
        """What a step draws from besides torch's global generators."""
        return []

    def seed(self, common: int, own: int, device: torch.device, network_draws: bool) -> None:  # noqa: ARG002
        """Seeds what belongs to the batch, and what a network draws by itself (dropout), which is a process's own."""
        torch.manual_seed(common)

    def random_state(self, device: torch.device) -> dict[str, Any]:
        """Where all random numbers stand, those of all processes."""
        return generator_states(device)

    def set_random_state(self, state: dict[str, Any], device: torch.device) -> None:
        set_generator_states(state, device)

    # Agreement

    def merge(self, metrics: Accumulator) -> None:
        """Gives sums of metrics what all processes have seen."""

    def first(self, function: Callable[[], Value]) -> Value:
        """What the first process finds out or does, for all; what it refuses, all refuse."""
        return function()

    def in_turn(self, function: Callable[[], Value]) -> Value:
        """What every process finds out for itself, the first one before the others: it may have to fetch it."""
        return function()

    def wait(self) -> None:
        """Until all are here, however long that takes."""

    def collected(self, value: Value) -> list[Value]:
        """Every process's value, in their order."""
        return [value]

    def gathered(self, value: Value) -> list[Value] | None:
        """The same for the first process only."""
        return [value]

    def consult(
        self,
        told: signal.Signals | None,
        due: bool,
        *,
        now: bool = False,  # noqa: ARG002
    ) -> tuple[signal.Signals | None, bool]:
        """The signal that any process was told, and whether the first one's clock says that a checkpoint is due."""
        return told, due


ALONE = World()
