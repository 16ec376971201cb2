"""The processes that train together, as the loop sees them; this class is the case of a single process."""

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
    """A single process: the interface, and implementations that need no communication."""

    rank = 0
    size = 1
    local_rank = 0

    @property
    def draws(self) -> Draws:
        """The source of random numbers for perturbations."""
        return DRAWS

    # A batch and its parts

    def take(self, x: Tensor, labels: Tensor, counts: Sequence[int] | None) -> Batch:  # noqa: ARG002
        """Starts work on this process's part of a batch; `counts` are the sizes of all processes' parts, if known."""
        return x, labels

    def rest(self) -> None:
        """Leaves the batch: until the next `take`, all processes work on the same, whole inputs."""

    def examples(self, x: Tensor) -> int:
        """The number of examples in the batch, over all processes."""
        return x.shape[0]

    def pieces(self, x: Tensor, labels: Tensor, wanted: int) -> Iterator[tuple[Tensor, Tensor, float]]:
        """The part in pieces, each with the weight of its mean in the mean over the whole batch."""
        for part, answers in zip(x.chunk(wanted), labels.chunk(wanted), strict=True):
            yield part, answers, part.shape[0] / x.shape[0]

    def smallest_piece(self, batch: int, wanted: int) -> int:
        """The fewest examples over which BatchNorm will compute statistics, for batches of that size."""
        return min(part.shape[0] for part in torch.empty(batch).chunk(wanted))

    def summed(self, parameters: Sequence[nn.Parameter], loss: Tensor) -> Tensor:  # noqa: ARG002
        """All-reduces the gradients, in place, and returns the sum of the losses."""
        return loss

    def batch_key(self, x: Tensor, labels: Tensor) -> tuple[Any, ...]:
        """What a step has to be captured anew for; a new key appears in all processes at the same step."""
        return x.shape, x.dtype, x.stride(), labels.shape

    def share(self, net: nn.Module) -> None:
        """Gives a network the weights that it has in the first process."""

    # BatchNorm's statistics

    @property
    def counted(self) -> bool:
        """Whether this process's rows count; a stand-in's do not."""
        return True

    def rows_of_all(self, row: Tensor) -> Tensor:
        """Gathers the tensors of all processes, which have the same shape, into `[W, ...]`."""
        return row[None]

    def sum_(self, tensors: Sequence[Tensor]) -> None:
        """All-reduces tensors to their sums, in place."""

    # Random numbers

    @property
    def generators(self) -> list[torch.Generator]:
        """The generators a step draws from besides torch's global ones."""
        return []

    def seed(self, common: int, own: int, device: torch.device, network_draws: bool) -> None:  # noqa: ARG002
        """Seeds the draws for the batch, `common` to all processes, and a network's own draws (dropout), which differ
        between processes."""
        torch.manual_seed(common)

    def random_state(self, device: torch.device) -> dict[str, Any]:
        """The random states of all processes."""
        return generator_states(device)

    def set_random_state(self, state: dict[str, Any], device: torch.device) -> None:
        set_generator_states(state, device)

    # Agreement

    def merge(self, metrics: Accumulator) -> None:
        """Adds up the metrics' sums over all processes, in place."""

    def first(self, function: Callable[[], Value]) -> Value:
        """Calls the function in the first process only and returns its result in all; if it raises, all do."""
        return function()

    def in_turn(self, function: Callable[[], Value]) -> Value:
        """Calls the function in every process, the first one before the others, since it may have to download."""
        return function()

    def wait(self) -> None:
        """A barrier without a time limit."""

    def collected(self, value: Value) -> list[Value]:
        """The values of all processes, by rank."""
        return [value]

    def gathered(self, value: Value) -> list[Value] | None:
        """`collected` in the first process; None in the others."""
        return [value]

    def consult(
        self,
        told: signal.Signals | None,
        due: bool,
        *,
        now: bool = False,  # noqa: ARG002
    ) -> tuple[signal.Signals | None, bool]:
        """The signal that any process has received, and whether by the first one's clock a checkpoint is due."""
        return told, due


ALONE = World()
