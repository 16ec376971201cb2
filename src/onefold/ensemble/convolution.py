"""M convolutions into one output tensor, for CPUs: each member's part is copied while it is still in cache."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


def suits(layer: nn.Module, x: Tensor) -> bool:
    """Whether `MemberConvolution` can do what the layer does; if not, the layer runs M ordinary convolutions."""
    return (
        not torch.compiler.is_compiling()
        and x.device.type == "cpu"
        and (x.is_contiguous() or (x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)))
        and getattr(layer, "padding_mode", "zeros") == "zeros"
        and not isinstance(layer.padding, str)
        and not torch.is_autocast_enabled("cpu")
        and not torch._C._functorch.is_functorch_wrapped_tensor(x)
    )


class MemberConvolution(torch.autograd.Function):
    """y_m = conv(x_m, W_m) + b for inputs `[M, B, C, ...]` and weights `[M, *weight.shape]`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weights: Tensor, bias: Tensor | None, settings: tuple[Any, ...]) -> Tensor:
        ctx.save_for_backward(x, weights, bias)
        ctx.settings = settings
        whole: Tensor | None = None
        for m in range(x.shape[0]):
            part = torch.convolution(x[m], weights[m], bias, *settings)
            if whole is None:  # channels-last if the member's part is
                whole = part.new_empty_strided((x.shape[0], *part.shape), (part.numel(), *part.stride()))
            whole[m] = part
        assert whole is not None
        return whole

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        (of_output,) = gradients
        x, weights, bias = ctx.saved_tensors
        wanted = [bool(needed) for needed in ctx.needs_input_grad[:3]]
        sizes = None if bias is None else list(bias.shape)
        of_x = torch.empty_like(x) if wanted[0] else None
        of_weights, of_bias = [], []
        for m in range(x.shape[0]):
            part = torch.ops.aten.convolution_backward(of_output[m], x[m], weights[m], sizes, *ctx.settings, wanted)
            if of_x is not None:
                of_x[m] = part[0]
            of_weights.append(part[1])
            of_bias.append(part[2])
        return (
            of_x,
            torch.stack(of_weights) if wanted[1] else None,
            torch.stack(of_bias).sum(0) if wanted[2] else None,
            None,
        )
