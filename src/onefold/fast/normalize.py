"""BatchNorm between two rank-one layers, fused with everything around it.

The layer before multiplies its outputs by s_m, the layer after multiplies its inputs by r_m, and there is often an
activation in between. With statistics over all members' images,

    z_m = r_m o relu(gamma o (s_m o y_m - mu) / sigma + beta),

which, apart from the activation, is one affine function of y_m for each member and channel. The only sums over
activations that the gradient needs are each member's sums of g and g o y: the gradients of r, s, gamma and beta follow
from them without another pass over the activations.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, update_wrapper
from typing import Any

import torch
from torch import Tensor

from onefold.fast import passes
from onefold.fast.across import World
from onefold.fast.layout import by_member, innermost_channels
from onefold.fast.norm import Learned, Moments, Norm, Running, Sum
from onefold.types import at_least_float32


class Normalize(torch.autograd.Function):
    """Training mode: uses the statistics of the batch, over all processes of a world, and updates the running ones."""

    @staticmethod
    def forward(
        ctx: Any,
        y: Tensor,
        q: Tensor | None,
        x: Tensor | None,
        s: Tensor | None,
        weight: Tensor | None,
        bias: Tensor | None,
        r: Tensor | None,
        onto: Tensor | None,
        mean: Tensor | None,
        var: Tensor | None,
        norm: Norm,
        world: World | None,
    ) -> Any:
        given, y = y, innermost_channels(y)
        running = None if mean is None or var is None else (mean, var)
        total, table = passes.moments(y, added(q, x, y), Learned(s, weight, bias, r), running, norm, world)
        found = Moments.of(table, norm.members)
        z = passes.affine(total, found.a, found.b, r, norm.relu, beneath(onto, y))
        scaled = y if q is not None and ctx.needs_input_grad[1] else None
        ctx.save_for_backward(total, scaled, q, s, weight, bias, r, table, None if onto is None else z)
        ctx.norm, ctx.world, ctx.of_x = norm, world, None if x is None else x.dtype
        ctx.of_onto = None if onto is None else onto.dtype
        ctx.set_materialize_grads(False)
        return (z, given if x is None else total) if norm.shared else z

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        total, y, q, s, weight, bias, r, table, z = ctx.saved_tensors
        norm: Norm = ctx.norm
        dz, also = gradients[0], gradients[1] if norm.shared else None
        if dz is None:
            return *of_sum(also, y, q, ctx.of_x), *[None] * 9
        dz = innermost_channels(dz)
        also = None if also is None else innermost_channels(also)
        found = Moments.of(table, norm.members)
        learned = Learned(s, weight, bias, r)
        coefficients, of_learned, passed = passes.gradient_table(dz, total, table, learned, norm, ctx.world, z)
        g, relu = (dz, norm.relu) if passed is None else (passed, False)
        of_total = passes.gradient(g, total, found.a, found.b, coefficients, also, relu)
        of_onto = None if passed is None else passed.to(ctx.of_onto)
        return *of_sum(of_total, y, q, ctx.of_x), *of_learned, of_onto, *[None] * 4


class Rest(torch.autograd.Function):
    """Evaluation mode: uses the running statistics."""

    @staticmethod
    def forward(
        ctx: Any,
        y: Tensor,
        q: Tensor | None,
        x: Tensor | None,
        s: Tensor | None,
        weight: Tensor | None,
        bias: Tensor | None,
        r: Tensor | None,
        onto: Tensor | None,
        mean: Tensor,
        var: Tensor,
        norm: Norm,
    ) -> Any:
        given, y = y, innermost_channels(y)
        total, z = passes.rest(y, added(q, x, y), Learned(s, weight, bias, r), (mean, var), norm, beneath(onto, y))
        ctx.learns = any(ctx.needs_input_grad[3:7])
        if any(ctx.needs_input_grad):
            scaled = y if q is not None and ctx.needs_input_grad[1] else None
            kept = total if (norm.relu and onto is None) or ctx.learns else None
            learned = (s, weight, bias, r, mean, var)
            ctx.save_for_backward(kept, scaled, q, *learned, None if onto is None else z)
        ctx.norm, ctx.of_x = norm, None if x is None else x.dtype
        ctx.of_onto = None if onto is None else onto.dtype
        ctx.set_materialize_grads(False)
        return (z, given if x is None else total) if norm.shared else z

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        total, y, q, s, weight, bias, r, mean, var, z = ctx.saved_tensors
        norm: Norm = ctx.norm
        dz, also = gradients[0], gradients[1] if norm.shared else None
        if dz is None:
            return *of_sum(also, y, q, ctx.of_x), *[None] * 8
        dz = innermost_channels(dz)
        also = None if also is None else innermost_channels(also)
        learned, running = Learned(s, weight, bias, r), (mean, var)
        decisive = total if norm.relu and z is None else None
        of_total, passed = passes.rest_gradient(dz, decisive, learned, running, norm, also, z)
        g, relu = (dz, norm.relu) if passed is None else (passed, False)
        of_learned = learned_at_rest(g, total, learned, running, norm, relu) if ctx.learns else [None] * 4
        of_onto = None if passed is None else passed.to(ctx.of_onto)
        return *of_sum(of_total, y, q, ctx.of_x), *of_learned, of_onto, *[None] * 3


def added(q: Tensor | None, x: Tensor | None, y: Tensor) -> Sum:
    return Sum(None, None) if x is None else Sum(q, innermost_channels(x.to(y.dtype)))


def beneath(onto: Tensor | None, y: Tensor) -> Tensor | None:
    return None if onto is None else innermost_channels(onto.to(y.dtype))


def of_sum(
    g: Tensor | None, y: Tensor | None, q: Tensor | None, of_x: torch.dtype | None
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The gradients of y, q and x, given that of (1 + q) o y + x."""
    if g is None or q is None:
        return g, None, None if g is None or of_x is None else g.to(of_x)
    dy, dq = passes.scaled_gradient(g, y, q)
    return dy, dq, None if of_x is None else g.to(of_x)


def learned_at_rest(dz: Tensor, y: Tensor, learned: Learned, running: Running, norm: Norm, relu: bool) -> Learned:
    """Gradients of s, gamma, beta and r with fixed statistics. Not optimized: training with BatchNorm in evaluation
    mode is rare."""
    values = at_least_float32(by_member(y, norm.members))
    with torch.enable_grad():
        leaves = Learned(*(t if t is None else t.detach().requires_grad_() for t in learned))
        z = passes.activated(values, *passes.at_rest(leaves, running, norm), leaves.r, relu)
        wanted = [t for t in leaves if t is not None]
        found = iter(torch.autograd.grad(z, wanted, by_member(dz, norm.members).to(z.dtype)))
    return Learned(*(None if t is None else next(found) for t in leaves))


def normalize(
    y: Tensor,
    q: Tensor | None,
    x: Tensor | None,
    s: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    r: Tensor | None,
    onto: Tensor | None,
    mean: Tensor | None,
    var: Tensor | None,
    training: bool,
    norm: Norm,
    world: World | None = None,
) -> Any:
    """z; or z and the norm's input if the norm is `shared`.

    The input is y, or (1 + q) o y + x if x is given. `onto` is added to the normalised values before the activation; if
    it is given there is always an activation, and no r. Factors q, s and r `[M, C]` are offsets from one; mean and var
    are the running statistics.
    """
    if training:
        return Normalize.apply(y, q, x, s, weight, bias, r, onto, mean, var, norm, world)
    return Rest.apply(y, q, x, s, weight, bias, r, onto, mean, var, norm)


def normalizing(world: World | None) -> Callable[..., Any]:
    """`normalize` with statistics over all processes of a world, as a function: a graph cannot hold a World object."""
    return normalize if world is None else update_wrapper(partial(normalize, world=world), normalize)
