"""BatchNorm over the examples of all processes, as in a single process, for any backend and parts of unequal size."""

from __future__ import annotations

from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn.modules.batchnorm import _BatchNorm

from onefold.engine.distributed.world import World
from onefold.fast.across import batch_norm_across
from onefold.types import at_least_float32


class Normalize(Function):
    """(x - mean) / sqrt(var + eps) * weight + bias, with mean and variance `[C]` over all processes' x `[N, C, ...]`.

    Forward gathers each process's count, mean and variance; backward all-reduces two numbers per channel. Also returns
    mean, variance and the count `[1]`, for the running statistics.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, world: World
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        values = at_least_float32(x)
        variance, mean = torch.var_mean(values, others(x), correction=0)
        counted = world.counted
        count = values.new_full((1,), x.numel() // x.shape[1] if counted else 0)
        every = world.rows_of_all(torch.cat((mean, variance, count)))  # [W, 2 C + 1]
        means, variances, counts = every.split((len(mean), len(mean), 1), 1)
        total = counts.sum(0)  # [1]
        weights = counts / total  # [W, 1]
        mean = (weights * means).sum(0)
        # Via deviations from the common mean, so that no large numbers are subtracted.
        variance = (weights * (variances + (means - mean).square())).sum(0)
        scale = (variance + eps).rsqrt()
        y = (values - along(mean, x)) * along(scale, x)
        y = y if weight is None else y * along(weight, x)
        y = y if bias is None else y + along(bias, x)
        ctx.save_for_backward(x, weight, mean, scale, total)
        ctx.world, ctx.counted = world, counted
        ctx.mark_non_differentiable(mean, variance, total)
        return y.to(x.dtype), mean, variance, total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, scale, total = ctx.saved_tensors
        gradient = at_least_float32(gradients[0])
        normal = (at_least_float32(x) - along(mean, x)) * along(scale, x)
        own = torch.stack((gradient.sum(others(x)), (gradient * normal).sum(others(x))))  # of bias and weight
        sums = own.clone()
        ctx.world.sum_([sums])
        level, slope = sums / total
        # A stand-in does not contribute to mean and variance.
        back = gradient - along(level, x) - normal * along(slope, x) if ctx.counted else gradient
        back = (back * along(scale if weight is None else scale * weight, x)).to(x.dtype)
        _, of_weight, of_bias, *_ = ctx.needs_input_grad
        return back, own[1] if of_weight else None, own[0] if of_bias else None, None, None


def others(x: Tensor) -> list[int]:
    """All dimensions except the channels."""
    return [d for d in range(x.dim()) if d != 1]


def along(channels: Tensor, x: Tensor) -> Tensor:
    """Reshapes `[C]` to broadcast with x `[N, C, ...]`."""
    return channels.view(-1, *(1,) * (x.dim() - 2))


class AcrossProcesses(nn.Module):
    """A BatchNorm layer that, in training, uses statistics over all processes. A copy of it is an ordinary layer."""

    original: ClassVar[type[nn.Module]]
    world: ClassVar[World]
    rewritten: ClassVar[bool] = False  # if True, the rewritten graph's replacement for this layer does the collectives

    def forward(self, x: Tensor) -> Tensor:
        own = cast(Any, self)
        if not self.training:
            return cast(Tensor, super().forward(x))
        own._check_input_dim(x)
        if self.rewritten:
            return self.as_read(x)
        y, mean, variance, count = cast(Any, Normalize.apply)(x, own.weight, own.bias, own.eps, self.world)
        if own.track_running_stats and own.running_mean is not None:
            with torch.no_grad():
                own.num_batches_tracked.add_(1)
                kept: Tensor = own.running_mean
                # A momentum of None means the plain average over all batches.
                rate = own.momentum if own.momentum is not None else 1 / own.num_batches_tracked.to(kept.dtype)
                kept.lerp_(mean.to(kept.dtype), rate)
                unbiased = variance * (count / (count - 1))
                own.running_var.lerp_(unbiased.to(kept.dtype), rate)
        return cast(Tensor, y)

    def as_read(self, x: Tensor) -> Tensor:
        """The same, as one call that the graph rewriting recognises."""
        own = cast(Any, self)
        mean, var = (own.running_mean, own.running_var) if own.track_running_stats else (None, None)
        if mean is not None:
            own.num_batches_tracked.add_(1)
        return batch_norm_across(x, mean, var, own.weight, own.bias, True, own.momentum, own.eps)

    def __reduce_ex__(self, _protocol: object) -> Any:
        return empty, (type(self).original,), cast(Any, self).__getstate__()


def empty(original: type[nn.Module]) -> nn.Module:
    return original.__new__(original)


def leave_to_rewriting(net: nn.Module, rewritten: bool = True) -> bool:
    """Sets whether the rewritten graph computes the statistics of these layers; returns whether there are any."""
    layers = [module for module in net.modules() if isinstance(module, AcrossProcesses)]
    for layer in layers:
        type(layer).rewritten = rewritten
    return bool(layers)


def share_statistics(net: nn.Module, world: World) -> list[str]:
    """Makes every BatchNorm layer of a network, in place, use statistics over all processes.

    A layer is converted by changing its class to a subclass, so that names, hooks and `isinstance` checks keep working.
    Returns the names of layers that override forward, which keep the statistics of their own process.
    """
    left = []
    classes: dict[type[nn.Module], type[AcrossProcesses]] = {}
    for name, module in net.named_modules():
        if not isinstance(module, _BatchNorm) or isinstance(module, nn.SyncBatchNorm):
            continue
        original = type(module)
        if original.forward is not _BatchNorm.forward:
            left.append(name)
            continue
        if original not in classes:
            attributes = {"original": original, "world": world}
            classes[original] = type(f"{original.__name__}AcrossProcesses", (AcrossProcesses, original), attributes)
        cast(Any, module).__class__ = classes[original]
    return left
