"""A convolution whose weights were rounded beforehand, and whose weights' gradient may be computed beside the rest."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor

from onefold.fast.layout import innermost_channels

HELD = 3  # gradients under way beside the backward pass at most: their inputs stay in memory as long
ALIGNED = 8  # channels are filled up with zeros to so many: cuDNN's kernels for tensor cores read them together


class Gradients:
    """Gradients of weights on a stream of their own. Nobody but the optimizer waits for them."""

    def __init__(self) -> None:
        self.stream = torch.cuda.Stream()
        self.found: list[tuple[Tensor, Tensor]] = []
        self.held: deque[tuple[torch.cuda.Event, tuple[Tensor, ...]]] = deque()

    def begin(self) -> None:
        """Forgets what a step that broke off may have left."""
        self.found.clear()
        self.held.clear()

    def add(self, weight: Tensor, x: Tensor, rounded: Tensor, g: Tensor, settings: tuple[Any, ...]) -> None:
        current = torch.cuda.current_stream()
        self.stream.wait_stream(current)
        with torch.cuda.stream(self.stream):
            dw = raw_gradient_of_weight(g, x, rounded, settings)[:, : weight.shape[1]]
            self.held.append((self.stream.record_event(), (x, g)))
        self.found.append((weight, dw))
        if len(self.held) > HELD:
            event, _ = self.held.popleft()
            current.wait_event(event)  # from here on their memory may be used again

    def join(self) -> None:
        """Gives every weight its gradient."""
        torch.cuda.current_stream().wait_stream(self.stream)
        found = like_weights(self.found)
        for (weight, _), dw in zip(self.found, found, strict=True):
            weight.grad = dw if weight.grad is None else weight.grad + dw
        self.begin()


BESIDE: ContextVar[Gradients | None] = ContextVar("BESIDE", default=None)


@contextlib.contextmanager
def gradients_beside(gradients: Gradients | None) -> Iterator[None]:
    """Convolutions called inside leave their weights' gradients to `gradients`, whose `join` hands them out."""
    token = BESIDE.set(gradients)
    try:
        yield
    finally:
        BESIDE.reset(token)


class Convolve(torch.autograd.Function):
    """conv(x, W) + b with W rounded already, and an activation where asked; `weight` is where W's gradient goes."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        rounded: Tensor,
        bias: Tensor | None,
        settings: tuple[Any, ...],
        relu: bool,
    ) -> Tensor:
        ctx.kind = x.dtype
        x = x.to(rounded.dtype)
        ctx.channels = x.shape[1]
        if x.is_cuda and x.dim() == 4 and ctx.channels < ALIGNED and settings[-1] == 1 and x.dtype != torch.float32:
            channels = channels_for(x, rounded, settings)
            x, rounded = filled_up(x, channels), filled_up(rounded, channels)
        x, rounded = innermost_channels(x), innermost_channels(rounded)
        needed = ctx.needs_input_grad
        y = applied(x, rounded, bias, settings, relu)
        ctx.save_for_backward(x if needed[1] else None, weight, rounded, y if relu and any(needed) else None)
        ctx.shape = x.shape
        ctx.settings, ctx.beside = settings, BESIDE.get()
        ctx.bias = None if bias is None else bias.dtype
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        x, weight, rounded, y = ctx.saved_tensors
        g = innermost_channels(gradients[0])
        g = g if y is None else torch.where(y > 0, g, 0.0)
        needed = ctx.needs_input_grad
        dw = dx = db = None
        if needed[1] and ctx.beside is not None:
            ctx.beside.add(weight, x, rounded, g, ctx.settings)
        elif needed[1]:
            dw = gradient_of_weight(g, x, rounded, weight, ctx.settings)
        if needed[0]:
            dx = gradient_of_input(g, x, rounded, ctx.shape, ctx.settings)[:, : ctx.channels].to(ctx.kind)
        if needed[3]:
            db = g.sum([0, *range(2, g.dim())], dtype=ctx.bias)
        return dx, dw, None, db, None, None


def applied(x: Tensor, w: Tensor, bias: Tensor | None, settings: tuple[Any, ...], relu: bool) -> Tensor:
    """The convolution, by the kernels that suit it."""
    if small(x, w, settings):
        from onefold.fast.few_channels import few_channels

        return few_channels(x, w, bias, relu=relu)
    bias = None if bias is None else bias.to(x.dtype)
    stride, padding, dilation, *_, groups = settings
    if relu and x.is_cuda and x.dim() == 4 and x.dtype == torch.bfloat16 and bias is not None:
        y: Tensor = torch.ops.aten.cudnn_convolution_relu(x, w, bias, stride, padding, dilation, groups)
        return y
    y = torch.convolution(x, w, bias, *settings)
    return y.relu_() if relu else y


def gradient_of_input(
    g: Tensor, x: Tensor | None, rounded: Tensor, shape: torch.Size, settings: tuple[Any, ...]
) -> Tensor:
    if small(g, rounded, settings):
        from onefold.fast.few_channels import few_channels

        return few_channels(g, rounded, transposed=True)
    like = innermost_empty(g, shape) if x is None else x
    dx: Tensor = backward_of(g, like, rounded, settings, (True, False))[0]
    return dx


def raw_gradient_of_weight(g: Tensor, x: Tensor, rounded: Tensor, settings: tuple[Any, ...]) -> Tensor:
    """As the kernels write it: rounded, and with the channels that were filled up."""
    if small(x, rounded, settings):
        from onefold.fast.few_channels import few_channels_weight_gradient

        return few_channels_weight_gradient(g, x)
    dw: Tensor = backward_of(g, x, rounded, settings, (False, True))[1]
    return dw


def gradient_of_weight(g: Tensor, x: Tensor, rounded: Tensor, weight: Tensor, settings: tuple[Any, ...]) -> Tensor:
    """In the weight's own precision and layout."""
    return like_weights([(weight, raw_gradient_of_weight(g, x, rounded, settings)[:, : weight.shape[1]])])[0]


def like_weights(found: list[tuple[Tensor, Tensor]]) -> list[Tensor]:
    """Gradients in the precision and the layout of their weights, all that need it in a few kernels."""
    gradients = [dw for _, dw in found]
    odd = [k for k, (w, dw) in enumerate(found) if dw.dtype != w.dtype or dw.stride() != w.stride()]
    if odd:
        copies = [torch.empty_like(found[k][0]) for k in odd]
        torch._foreach_copy_(copies, [gradients[k] for k in odd])
        for k, copied in zip(odd, copies, strict=True):
            gradients[k] = copied
    return gradients


def small(x: Tensor, w: Tensor, settings: tuple[Any, ...]) -> bool:
    if not x.is_cuda or x.dtype != torch.bfloat16:
        return False
    from onefold.fast.few_channels import suits

    return suits(x, w, settings)


def backward_of(g: Tensor, x: Tensor, w: Tensor, settings: tuple[Any, ...], wanted: tuple[bool, bool]) -> Any:
    return torch.ops.aten.convolution_backward(g, x, w, None, *settings, [*wanted, False])


def innermost_empty(like: Tensor, shape: torch.Size) -> Tensor:
    """Stands in for an input of which only shape and layout are needed."""
    order = [0, *range(2, len(shape)), 1]
    return like.new_empty([shape[k] for k in order]).movedim(-1, 1)


def channels_for(x: Tensor, w: Tensor, settings: tuple[Any, ...]) -> int:
    """How many to fill up to: what the kernels for few channels take, where they suit, else what cuDNN's do."""
    if x.dtype != torch.bfloat16:
        return ALIGNED
    from onefold.fast.few_channels import CHANNELS, suits

    filled = w.new_empty((w.shape[0], CHANNELS[0], *w.shape[2:]))
    return CHANNELS[0] if suits(x, filled, settings) else ALIGNED


def filled_up(x: Tensor, channels: int) -> Tensor:
    filled = x.new_zeros((x.shape[0], channels, *x.shape[2:])).to(memory_format=torch.channels_last)
    filled[:, : x.shape[1]] = x
    return filled


def rounded(*weights: Tensor) -> tuple[Tensor, ...]:
    """The weights as the convolutions take them: rounded where autocast asks for it, all in a few kernels."""
    kind = weights[0].device.type
    with torch.no_grad():
        if not torch.is_autocast_enabled(kind):
            return tuple(w.detach() for w in weights)
        dtype = torch.get_autocast_dtype(kind)
        copies = [torch.empty_like(w, dtype=dtype) for w in weights]
        torch._foreach_copy_(copies, list(weights))
        return tuple(copies)


def convolve(
    x: Tensor,
    weight: Tensor,
    rounded: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    relu: bool,
) -> Tensor:
    """torch.conv2d, with the weight given twice: as it is, and rounded; and an activation where asked."""
    dims = weight.dim() - 2
    each = [list(v) if isinstance(v, (tuple, list)) else [v] * dims for v in (stride, padding, dilation)]
    settings = (*each, False, [0] * dims, groups)
    result: Tensor = Convolve.apply(x, weight, rounded, bias, settings, relu)
    return result
