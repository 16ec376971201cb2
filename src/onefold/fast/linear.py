"""The members' linear layers, each writing into one tensor: `members.linear_of_members` in rewritten networks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Linear(torch.autograd.Function):
    """y_m = x_m W_m^T + b for `[M, rows, C]` and `[M, K, C]`, with the bias added by the matrix product (addmm)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weights: Tensor, bias: Tensor | None) -> Tensor:
        ctx.kinds = x.dtype, weights.dtype, None if bias is None else bias.dtype
        kind = x.device.type
        rounds = torch.is_autocast_enabled(kind) and x.dtype != torch.float64
        dtype = torch.get_autocast_dtype(kind) if rounds else x.dtype
        x, weights = x.to(dtype), weights.to(dtype)
        needed = ctx.needs_input_grad
        ctx.save_for_backward(x if needed[1] else None, weights if needed[0] else None)
        y = x.new_empty((*x.shape[:2], weights.shape[1]))
        b = None if bias is None else bias.to(dtype)
        for own, w, out in zip(x.unbind(), weights.unbind(), y.unbind(), strict=True):
            if b is None:
                torch.mm(own, w.t(), out=out)
            else:
                torch.addmm(b, own, w.t(), out=out)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        (g,) = gradients
        x, weights = ctx.saved_tensors
        of_x, of_weights, of_bias = ctx.kinds
        dx = dw = db = None
        if weights is not None:
            dx = g.new_empty((*g.shape[:2], weights.shape[2]))
            for own, w, out in zip(g.unbind(), weights.unbind(), dx.unbind(), strict=True):
                torch.mm(own, w, out=out)
            dx = dx.to(of_x)
        if x is not None:
            dw = g.new_empty((g.shape[0], g.shape[2], x.shape[2]))
            for own, h, out in zip(g.unbind(), x.unbind(), dw.unbind(), strict=True):
                torch.mm(own.t(), h, out=out)
            dw = dw.to(of_weights)
        if ctx.needs_input_grad[2]:
            db = g.sum((0, 1), dtype=of_bias)
        return dx, dw, db


def linear(x: Tensor, weights: Tensor, bias: Tensor | None) -> Tensor:
    """W_m x + b for the examples of member m: `[M * B, ..., C]` to `[M * B, ..., K]`."""
    y: Tensor = Linear.apply(x.reshape(weights.shape[0], -1, x.shape[-1]), weights, bias)
    return y.reshape(*x.shape[:-1], weights.shape[1])
