"""BatchNorm over a batch shared by several processes, as the rewriting sees it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor


class World(Protocol):
    """What a normalisation needs of the processes that share a batch; all of them must make the same calls."""

    @property
    def counted(self) -> bool:
        """Whether this process's rows count; a stand-in's do not."""

    def rows_of_all(self, row: Tensor) -> Tensor:
        """Gathers the tensors of all processes, which have the same shape, into `[W, ...]`."""

    def sum_(self, tensors: Sequence[Tensor]) -> None:
        """All-reduces tensors to their sums, in place."""


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
    """Marks, in a network's graph, a BatchNorm with statistics over all processes.

    The rewriting replaces it by the real one or refuses the network; this stand-in only has the right shapes.
    """
    return F.batch_norm(x, mean, var, weight, bias, training, momentum or 0.0, eps)


def pooled(every: Tensor, members: int) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and variance of each member `[M, C]` and the number of rows `[C]`, from each process's `[W, 2 M + 1, C]`."""
    means, variances, counts = every.split((members, members, 1), 1)
    total = counts.sum(0)  # [1, C]
    weights = counts / total
    mean = (weights * means).sum(0)
    # Via deviations from the common mean, so that no large numbers are subtracted.
    return mean, (weights * (variances + (means - mean).square())).sum(0), total[0]


def own_row(mean: Tensor, var: Tensor, rows: int) -> Tensor:
    """What a process sends to the others: means, variances and the number of rows, `[2 M + 1, C]`."""
    return torch.cat([mean, var, torch.full_like(mean[:1], rows)])
