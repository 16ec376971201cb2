"""Members' operations on activations, as layers call them; rewriting replaces them by `scale.py` and `linear.py`."""

from __future__ import annotations

import torch
from torch import Tensor


def scaled(x: Tensor, minus_one: Tensor) -> Tensor:
    """Multiplies channel c of member m by its factor, `1 + minus_one` `[M, C]`, for activations `[M * B, C, ...]`.

    The product is computed in the factors' precision and rounded to that of the activations.
    """
    factor = (1 + minus_one).reshape(minus_one.shape[0], 1, -1, *(1,) * (x.dim() - 2))
    return (torch.unflatten(x, 0, (minus_one.shape[0], -1)) * factor).to(x.dtype).flatten(0, 1)


def scaled_features(x: Tensor, minus_one: Tensor) -> Tensor:
    """The same for activations `[M * B, ..., C]`, with features last."""
    factor = (1 + minus_one).reshape(minus_one.shape[0], *(1,) * (x.dim() - 1), -1)
    return (torch.unflatten(x, 0, (minus_one.shape[0], -1)) * factor).to(x.dtype).flatten(0, 1)


def linear_of_members(x: Tensor, weights: Tensor, bias: Tensor | None) -> Tensor:
    """W_m x + b for the examples of member m: x `[M * B, ..., C]` and weights `[M, K, C]` give `[M * B, ..., K]`."""
    own = x.reshape(weights.shape[0], -1, x.shape[-1])
    y = torch.matmul(own, weights.mT)
    y = y if bias is None else y + bias.to(y.dtype)
    return y.reshape(*x.shape[:-1], weights.shape[1])
