"""BatchNorm over a batch that several processes share, as the rewriting sees it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor


class World(Protocol):
    """What a normalisation asks of the processes that share a batch; all of them ask in step."""

    @property
    def counted(self) -> bool:
        """Whether this process's rows count; those of a stand-in do not."""

    def rows_of_all(self, row: Tensor) -> Tensor:
        """Everybody's tensor of one shape, one below the other: `[W, ...]`."""

    def sum_(self, tensors: Sequence[Tensor]) -> None:
        """Sums over all processes, in place."""


def batch_norm_across(
    x: Tensor,
    mean: Tensor | None,
    var: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    training: bool,
    momentum: float | None,
    eps: float,
) -> Tensor:
    """In the graph of a network, a BatchNorm whose statistics are those of all processes.

    The rewriting puts the real one in its place, or refuses the network; this one only has its shape.
    """
    return F.batch_norm(x, mean, var, weight, bias, training, momentum or 0.0, eps)


def pooled(every: Tensor, members: int) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and variance of each member `[M, C]` and the number of rows `[C]`, from each process's `[W, 2 M + 1, C]`."""
    means, variances, counts = every.split((members, members, 1), 1)
    total = counts.sum(0)  # [1, C]
    weights = counts / total
    mean = (weights * means).sum(0)
    # Deviations from the common mean, so that nothing large is subtracted.
    return mean, (weights * (variances + (means - mean).square())).sum(0), total[0]


def own_row(mean: Tensor, var: Tensor, rows: int) -> Tensor:
    """What a process tells the others: `[2 M + 1, C]`."""
    return torch.cat([mean, var, torch.full_like(mean[:1], rows)])
