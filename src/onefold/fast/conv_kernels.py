"""A convolution and its gradients, by this package's kernels if there are few channels, else by cuDNN's."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from onefold.fast.ahead import only_asked
from onefold.fast.layout import innermost_empty

ALIGNED = 8  # channels are zero-padded to this many: cuDNN's tensor-core kernels read them together


class Settings(NamedTuple):
    """The arguments of torch.convolution after input, weight and bias."""

    stride: list[int]
    padding: list[int]
    dilation: list[int]
    transposed: bool
    output_padding: list[int]
    groups: int


def forward(x: Tensor, w: Tensor, bias: Tensor | None, settings: Settings, relu: bool) -> Tensor:
    """The convolution, followed by a ReLU if `relu` is set."""
    if small(x, w, settings):
        from onefold.fast.few_channels import few_channels

        y = few_channels(x, w, bias, relu=relu)
        if not only_asked():
            return y
    bias = None if bias is None else bias.to(x.dtype)
    if relu and x.is_cuda and x.dim() == 4 and x.dtype == torch.bfloat16 and bias is not None:
        stride, padding, dilation, *_, groups = settings
        activated: Tensor = torch.ops.aten.cudnn_convolution_relu(x, w, bias, stride, padding, dilation, groups)
        return activated
    y = torch.convolution(x, w, bias, *settings)
    return y.relu_() if relu else y


def gradient_of_input(g: Tensor, x: Tensor | None, w: Tensor, shape: torch.Size, settings: Settings) -> Tensor:
    """The gradient of the input; x may be None, because only its shape is needed."""
    if small(g, w, settings):
        from onefold.fast.few_channels import few_channels

        dx = few_channels(g, w, transposed=True)
        if not only_asked():
            return dx
    like = innermost_empty(g, shape) if x is None else x
    return torch.as_tensor(backward(g, like, w, settings, (True, False))[0])


def gradient_of_weight(g: Tensor, x: Tensor, w: Tensor, settings: Settings) -> Tensor:
    """The gradient of the weight as the kernels write it: rounded, and including zero-padded channels."""
    if small(x, w, settings, gradient=True):
        from onefold.fast.few_channels import few_channels_weight_gradient

        dw = few_channels_weight_gradient(g, x)
        if not only_asked():
            return dw
    return torch.as_tensor(backward(g, x, w, settings, (False, True))[1])


def backward(g: Tensor, x: Tensor, w: Tensor, settings: Settings, wanted: tuple[bool, bool]) -> Any:
    return torch.ops.aten.convolution_backward(g, x, w, None, *settings, [*wanted, False])


def small(x: Tensor, w: Tensor, settings: Settings, *, gradient: bool = False) -> bool:
    """Whether `few_channels` can compute the convolution, or the gradient of its weights. The device is checked first,
    because a machine without a GPU may not have Triton."""
    if not x.is_cuda or x.dtype != torch.bfloat16:
        return False
    from onefold.fast.few_channels import suits, suits_gradient

    return suits_gradient(x, w, settings) if gradient else suits(x, w, settings)


def aligned(x: Tensor, w: Tensor, settings: Settings) -> tuple[Tensor, Tensor]:
    """Input and weight with zero-padded channels, if there are too few for any fast kernel."""
    if x.is_cuda and x.dim() == 4 and x.shape[1] < ALIGNED and settings.groups == 1 and x.dtype != torch.float32:
        channels = channels_for(x, w, settings)
        return filled_up(x, channels), filled_up(w, channels)
    return x, w


def channels_for(x: Tensor, w: Tensor, settings: Settings) -> int:
    """How many channels to pad to: what `few_channels` takes if it suits the convolution, else what cuDNN takes."""
    if x.dtype != torch.bfloat16:
        return ALIGNED
    from onefold.fast.few_channels import CHANNELS, suits

    filled = w.new_empty((w.shape[0], CHANNELS[0], *w.shape[2:]))
    return CHANNELS[0] if suits(x, filled, settings) else ALIGNED


def filled_up(x: Tensor, channels: int) -> Tensor:
    filled = x.new_zeros((x.shape[0], channels, *x.shape[2:])).to(memory_format=torch.channels_last)
    filled[:, : x.shape[1]] = x
    return filled
