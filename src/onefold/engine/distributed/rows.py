"""Gathers a batch from all processes' rows, and returns outputs to them, both differentiably."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from torch.autograd import Function

if TYPE_CHECKING:
    from onefold.engine.distributed.processes import Processes


def own_rows(rows: list[int], rank: int) -> slice:
    """The slice of a process's rows in the whole batch."""
    first = sum(rows[:rank])
    return slice(first, first + rows[rank])


class GatherRows(Function):
    """Gathers x `[B_r, ...]` of every process r into `[B, ...]`; backward sums the gradients of each one's rows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: list[int], world: Processes) -> Tensor:
        ctx.rows, ctx.world = rows, world
        padded = x.new_zeros(max(rows), *x.shape[1:])
        padded[: x.shape[0]] = x
        every = world.rows_of_all(padded)  # [W, largest B_r, ...]
        whole = torch.cat([part[:count] for part, count in zip(every, rows, strict=True)])
        channels_last = x.dim() == 4 and not x.is_contiguous() and x.is_contiguous(memory_format=torch.channels_last)
        return whole.contiguous(memory_format=torch.channels_last) if channels_last else whole

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        total = gradients[0].clone(memory_format=torch.contiguous_format)
        ctx.world.sum_([total])
        return total[own_rows(ctx.rows, ctx.world.rank)], None, None


class SumRows(Function):
    """Sums outputs `[m, B, K]` over the processes, and returns each process its own rows `[m, B_r, K]`."""

    @staticmethod
    def forward(ctx: Any, answers: Tensor, rows: list[int], world: Processes) -> Tensor:
        ctx.rows, ctx.world = rows, world
        total = answers.clone(memory_format=torch.contiguous_format)
        world.sum_([total])
        return total[:, own_rows(rows, world.rank)]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = gradients
        total = gradient.new_zeros(gradient.shape[0], sum(ctx.rows), *gradient.shape[2:])
        total[:, own_rows(ctx.rows, ctx.world.rank)] = gradient
        ctx.world.sum_([total])
        return total, None, None


def gather_rows(x: Tensor, rows: list[int], world: Processes) -> Tensor:
    return cast(Tensor, cast(Any, GatherRows.apply)(x, rows, world))


def sum_rows(answers: Tensor, rows: list[int], world: Processes) -> Tensor:
    return cast(Tensor, cast(Any, SumRows.apply)(answers, rows, world))
