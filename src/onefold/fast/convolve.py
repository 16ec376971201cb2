"""A convolution with weights rounded beforehand, whose weight gradient may run concurrently with the backward pass."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor

from onefold.fast import conv_kernels
from onefold.fast.conv_kernels import Settings
from onefold.fast.layout import innermost_channels, laid_out_as
from onefold.fast.streams import apart

HELD = 3  # weight gradients in progress at most, because their inputs stay in memory until they are done


class Gradients:
    """Computes weight gradients on a separate stream, since only the optimizer waits for them.

    With `aside` off they are computed on the current stream. It is no ContextVar: backward passes have another thread.
    """

    def __init__(self) -> None:
        self.stream, self.aside = apart(), True
        self.found: list[tuple[Tensor, Tensor]] = []
        self.held: deque[tuple[torch.cuda.Event, tuple[Tensor, ...]]] = deque()

    def begin(self) -> None:
        """Discards what an aborted step may have left."""
        self.found.clear()
        self.held.clear()

    def add(self, weight: Tensor, x: Tensor, rounded: Tensor, g: Tensor, settings: Settings) -> None:
        if not self.aside:
            self.found.append((weight, conv_kernels.gradient_of_weight(g, x, rounded, settings)[:, : weight.shape[1]]))
            return
        current = torch.cuda.current_stream()
        self.stream.wait_stream(current)
        with torch.cuda.stream(self.stream):
            dw = conv_kernels.gradient_of_weight(g, x, rounded, settings)[:, : weight.shape[1]]
            self.held.append((self.stream.record_event(), (x, g)))
        self.found.append((weight, dw))
        if len(self.held) > HELD:
            event, _ = self.held.popleft()
            current.wait_event(event)  # after this the memory of x and g may be reused

    def join(self) -> None:
        """Waits for the gradients and assigns them to the weights."""
        if self.found and self.aside:  # a captured stream must not wait for one that is not part of the capture
            torch.cuda.current_stream().wait_stream(self.stream)
        for (weight, _), dw in zip(self.found, like_weights(self.found), strict=True):
            weight.grad = dw if weight.grad is None else weight.grad + dw
        self.begin()


BESIDE: ContextVar[Gradients | None] = ContextVar("BESIDE", default=None)


@contextlib.contextmanager
def gradients_beside(gradients: Gradients | None) -> Iterator[None]:
    """Convolutions called inside leave their weight gradients to `gradients`, whose `join` assigns them."""
    token = BESIDE.set(gradients)
    try:
        yield
    finally:
        BESIDE.reset(token)


def in_fast_step() -> bool:
    """Whether the calling code is part of a fast-path step: not if the fast path is off, and not under torch.compile,
    which generates its own kernels."""
    return not torch.compiler.is_compiling() and BESIDE.get() is not None


class Convolve(torch.autograd.Function):
    """conv(x, W) + b, and a ReLU if `relu` is set, with W already rounded; its gradient goes to `weight`."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, rounded: Tensor, bias: Tensor | None, settings: Settings, relu: bool
    ) -> Tensor:
        ctx.kind = x.dtype
        x = x.to(rounded.dtype)
        ctx.channels = x.shape[1]
        x, rounded = conv_kernels.aligned(x, rounded, settings)
        x, rounded = innermost_channels(x), innermost_channels(rounded)
        needed = ctx.needs_input_grad
        y = conv_kernels.forward(x, rounded, bias, settings, relu)
        ctx.save_for_backward(x if needed[1] else None, weight, rounded, y if relu and any(needed) else None)
        ctx.shape = x.shape
        ctx.settings, ctx.beside = settings, BESIDE.get()
        ctx.bias = None if bias is None else bias.dtype
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        x, weight, rounded, y = ctx.saved_tensors
        g = innermost_channels(gradients[0])
        g = g if y is None else torch.ops.aten.threshold_backward(g, y, 0)  # the ReLU's backward
        needed = ctx.needs_input_grad
        dw = dx = db = None
        if needed[1] and ctx.beside is not None:
            ctx.beside.add(weight, x, rounded, g, ctx.settings)
        elif needed[1]:
            dw = conv_kernels.gradient_of_weight(g, x, rounded, ctx.settings)[:, : weight.shape[1]]
            (dw,) = like_weights([(weight, dw)])
        if needed[0]:
            dx = conv_kernels.gradient_of_input(g, x, rounded, ctx.shape, ctx.settings)
            dx = dx[:, : ctx.channels].to(ctx.kind)
        if needed[3]:
            db = g.sum([0, *range(2, g.dim())], dtype=ctx.bias)
        return dx, dw, None, db, None, None


def like_weights(found: list[tuple[Tensor, Tensor]]) -> list[Tensor]:
    """Converts gradients to the dtype and memory format of their weights, in a few kernels for all that need it."""
    gradients = [laid_out_as(weight, dw) for weight, dw in found]
    odd = [k for k, (w, _) in enumerate(found) if gradients[k].dtype != w.dtype or gradients[k].stride() != w.stride()]
    copies = {k: torch.empty_like(found[k][0]) for k in odd}
    # A single pair with different strides would make _foreach_copy_ copy all of them one by one.
    alike = [k for k in odd if gradients[k].stride() == copies[k].stride()]
    if alike:
        torch._foreach_copy_([copies[k] for k in alike], [gradients[k] for k in alike])
    for k in odd:
        if k not in alike:
            copies[k].copy_(gradients[k])
        gradients[k] = copies[k]
    return gradients


def round_all(*weights: Tensor) -> tuple[Tensor, ...]:
    """The weights in the convolutions' dtype: rounded under autocast, all of them in a few kernels."""
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
    """A 1-, 2- or 3-dimensional convolution with the weight given twice, as it is and rounded, and an optional ReLU."""
    dims = weight.dim() - 2
    stride, padding, dilation = (
        list(given) if isinstance(given, (tuple, list)) else [given] * dims for given in (stride, padding, dilation)
    )
    settings = Settings(stride, padding, dilation, False, [0] * dims, groups)
    result: Tensor = Convolve.apply(x, weight, rounded, bias, settings, relu)
    return result
