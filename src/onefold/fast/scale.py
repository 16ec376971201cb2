"""Members' factors on activations, with the sum that follows, in one pass: `members.scaled` in rewritten networks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from onefold.fast import passes
from onefold.fast.layout import innermost_channels


class Scale(torch.autograd.Function):
    """(1 + s_m) o y_m + x; x may be None."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, s: Tensor, x: Tensor | None) -> Tensor:
        y = innermost_channels(y)
        ctx.save_for_backward(y if ctx.needs_input_grad[1] else None, s)
        ctx.of_x = None if x is None else x.dtype
        return passes.scaled_sum(y, s, None if x is None else innermost_channels(x.to(y.dtype)))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (g,) = gradients
        y, s = ctx.saved_tensors
        dy, ds = passes.scaled_gradient(innermost_channels(g), y, s)
        return dy, ds, None if ctx.of_x is None else g.to(ctx.of_x)


def scale(y: Tensor, s: Tensor, x: Tensor | None = None) -> Tensor:
    """Channel c of member m times 1 + s_mc, plus x."""
    result: Tensor = Scale.apply(y, s, x)
    return result


def scale_features(y: Tensor, s: Tensor) -> Tensor:
    """Feature c of member m times 1 + s_mc, for `[M * B, ..., C]`."""
    return scale(y.reshape(-1, y.shape[-1]), s).reshape(y.shape)
