"""LayerNorm with the sum before it and the rounding after it, in one pass each way.

Under autocast, a transformer's residual stream h <- h + y(LayerNorm(h)) is in float32, while its matrix products take
bf16: done separately, that is one pass for the sum, one for the norm and one for rounding, and as many again for the
gradients. Here

    t = x + y,    z = gamma o (t - mean) / sigma + beta,

with mean and sigma over the features, is one pass that writes t and z, and backward is one pass that reads both
gradients:

    dt = (h - mean(h) - n mean(h o n)) / sigma + dt',    h = gamma o dz,    n = (t - mean) / sigma.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from onefold.fast import rows


class LayerNorm(torch.autograd.Function):
    """z; or z and t if `shared`, because t has other users, too."""

    @staticmethod
    def forward(
        ctx: Any,
        y: Tensor,
        x: Tensor | None,
        weight: Tensor | None,
        bias: Tensor | None,
        eps: float,
        rounded: bool,
        shared: bool,
    ) -> Any:
        shape, channels = y.shape, y.shape[-1]
        ctx.kinds = y.dtype, None if x is None else x.dtype
        flat = y.reshape(-1, channels).contiguous()
        added = None if x is None else x.reshape(-1, channels).contiguous()
        total, z, mean, rstd = rows.normalized(flat, added, weight, bias, eps, answer_type(flat, added, rounded))
        ctx.save_for_backward(total, weight, mean, rstd)
        ctx.learns, ctx.shared = weight is not None and any(ctx.needs_input_grad[2:4]), shared
        ctx.set_materialize_grads(False)
        z = z.reshape(shape)
        return (z, y if x is None else total.reshape(shape)) if shared else z

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        dz, also = gradients[0], gradients[1] if ctx.shared else None
        of_y, of_x = ctx.kinds
        if dz is None:
            both = (None if also is None else also.to(of_y), None if also is None or of_x is None else also.to(of_x))
            return *both, *[None] * 5
        total, weight, mean, rstd = ctx.saved_tensors
        shape, channels = dz.shape, dz.shape[-1]
        other = None if also is None else also.reshape(-1, channels).contiguous()
        lower = next((kind for kind in (of_y, of_x) if kind not in (None, total.dtype)), None)
        dt, copy, dgamma, dbeta = rows.normalized_gradient(
            dz.reshape(-1, channels).contiguous(), total, weight, mean, rstd, other, lower, ctx.learns
        )
        found = {total.dtype: dt.reshape(shape), lower: None if copy is None else copy.reshape(shape)}
        return found[of_y], None if of_x is None else found[of_x], dgamma, dbeta, None, None, None


def answer_type(y: Tensor, x: Tensor | None, rounded: bool) -> torch.dtype:
    """The dtype of torch's layer_norm; or, if only matrix products follow, the dtype autocast would round that to."""
    kind = y.device.type
    own = y.dtype if x is None else torch.promote_types(y.dtype, x.dtype)
    if not torch.is_autocast_enabled(kind) or own == torch.float64:
        return own
    return torch.get_autocast_dtype(kind) if rounded else torch.promote_types(own, torch.float32)


def layer_norm(
    y: Tensor, x: Tensor | None, weight: Tensor | None, bias: Tensor | None, eps: float, rounded: bool, shared: bool
) -> Any:
    """The LayerNorm of y + x, or of y alone, over the last dimension; and the sum itself if `shared`."""
    return LayerNorm.apply(y, x, weight, bias, eps, rounded, shared)
