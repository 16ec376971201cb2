"""BatchNorm between two rank-one layers, with all that surrounds it in one operation.

The layer before multiplies its outputs by s_m, the layer after its inputs by r_m, and an activation often stands
between. With statistics over all members' images,

    z_m = r_m o relu(gamma o (s_m o y_m - mu) / sigma + beta),

which is one affine function of y_m for each member and channel. Its gradient needs, of all activations, the members'
sums of g and g o y alone: those of r, s, gamma and beta follow from them without another look at the activations.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, update_wrapper
from typing import Any, NamedTuple

import torch
from torch import Tensor

from onefold.fast import passes
from onefold.fast.across import World


class Norm(NamedTuple):
    """What is fixed about a normalisation; `shared`: its input is needed elsewhere too."""

    members: int
    eps: float
    momentum: float
    relu: bool
    shared: bool


class Normalize(torch.autograd.Function):
    """In training: statistics of the batch, which move the running ones; of all processes' batch, in a world.

    The input is y, or (1 + q) o y + x where an x is given.
    """

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
        mean: Tensor | None,
        var: Tensor | None,
        norm: Norm,
        world: World | None,
    ) -> Any:
        given, y = y, passes.innermost_channels(y)
        add = added(q, x, y)
        running = None if mean is None or var is None else (mean, var)
        total, table = passes.moments(y, add, s, weight, bias, running, norm.momentum, norm.eps, norm.members, world)
        scaled = y if q is not None and ctx.needs_input_grad[1] else None
        ctx.save_for_backward(total, scaled, q, s, weight, bias, r, table)
        ctx.world = world
        ctx.norm, ctx.of_x = norm, None if x is None else x.dtype
        ctx.set_materialize_grads(False)
        z = passes.affine(total, table[: norm.members], table[3 * norm.members], r, norm.relu)
        return (z, given if add is None else total) if norm.shared else z

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        total, y, q, s, weight, bias, r, table = ctx.saved_tensors
        norm: Norm = ctx.norm
        m = norm.members
        dz, also = gradients[0], gradients[1] if norm.shared else None
        if dz is None:
            return *of_sum(also, y, q, ctx.of_x), None, None, None, None, None, None, None, None
        dz = passes.innermost_channels(dz)
        also = None if also is None else passes.innermost_channels(also)
        found = passes.gradient_table(dz, total, table, s, weight, bias, r, norm.relu, m, ctx.world)
        of_total = passes.gradient(dz, total, table[:m], table[3 * m], found[: 3 * m], also, norm.relu)
        return (
            *of_sum(of_total, y, q, ctx.of_x),
            None if s is None else found[3 * m : 4 * m],
            None if weight is None else found[5 * m],
            None if bias is None else found[5 * m + 1],
            None if r is None else found[4 * m : 5 * m],
            None,
            None,
            None,
            None,
        )


class Rest(torch.autograd.Function):
    """At rest: the running statistics."""

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
        mean: Tensor,
        var: Tensor,
        norm: Norm,
    ) -> Any:
        given, y = y, passes.innermost_channels(y)
        add = added(q, x, y)
        at = passes.Resting(s, weight, bias, mean, var, norm.eps, norm.members)
        total, z = passes.rest(y, add, at, r, norm.relu)
        ctx.learned = any(ctx.needs_input_grad[3:])
        if any(ctx.needs_input_grad):
            needed = y if q is not None and ctx.needs_input_grad[1] else None
            ctx.save_for_backward(total if norm.relu or ctx.learned else None, needed, q, s, weight, bias, r, mean, var)
        ctx.norm, ctx.of_x = norm, None if x is None else x.dtype
        ctx.set_materialize_grads(False)
        return (z, given if add is None else total) if norm.shared else z

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        total, y, q, s, weight, bias, r, mean, var = ctx.saved_tensors
        norm: Norm = ctx.norm
        dz, also = gradients[0], gradients[1] if norm.shared else None
        if dz is None:
            return *of_sum(also, y, q, ctx.of_x), None, None, None, None, None, None, None
        dz = passes.innermost_channels(dz)
        also = None if also is None else passes.innermost_channels(also)
        at = passes.Resting(s, weight, bias, mean, var, norm.eps, norm.members)
        of_total = passes.rest_gradient(dz, total if norm.relu else None, at, r, also)
        learned = learned_at_rest(dz, total, at, r, norm.relu) if ctx.learned else (None, None, None, None)
        return *of_sum(of_total, y, q, ctx.of_x), *learned, None, None, None


def added(q: Tensor | None, x: Tensor | None, y: Tensor) -> passes.Sum | None:
    return None if x is None else passes.Sum(q, passes.innermost_channels(x.to(y.dtype)))


def of_sum(
    g: Tensor | None, y: Tensor | None, q: Tensor | None, of_x: torch.dtype | None
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Gradients of y, q and x, from that of (1 + q) o y + x."""
    if g is None or q is None:
        return g, None, None if g is None or of_x is None else g.to(of_x)
    dy, dq = passes.scaled_gradient(g, y, q)
    return dy, dq, None if of_x is None else g.to(of_x)


def learned_at_rest(
    dz: Tensor, y: Tensor, at: passes.Resting, r: Tensor | None, relu: bool
) -> tuple[Tensor | None, ...]:
    """Gradients of s, gamma, beta and r with the statistics held: who trains with BatchNorm at rest does so rarely."""
    values = passes.sums_type(passes.by_member(y, at.members))
    with torch.enable_grad():
        learned = [t if t is None else t.detach().requires_grad_() for t in (at.s, at.weight, at.bias, r)]
        s, weight, bias, r = learned
        a, b = at._replace(s=s, weight=weight, bias=bias).table()
        z = values * a[:, None] + b
        z = z.relu() if relu else z
        z = z if r is None else z * (1 + r[:, None])
        wanted = [t for t in learned if t is not None]
        found = iter(torch.autograd.grad(z, wanted, passes.by_member(dz, at.members).to(z.dtype)))
    return tuple(None if t is None else next(found) for t in learned)


class Scale(torch.autograd.Function):
    """(1 + s_m) o y_m + x, where x may be absent."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, s: Tensor, x: Tensor | None) -> Tensor:
        y = passes.innermost_channels(y)
        ctx.save_for_backward(y if ctx.needs_input_grad[1] else None, s)
        ctx.of_x = None if x is None else x.dtype
        return passes.scaled_sum(y, s, None if x is None else passes.innermost_channels(x.to(y.dtype)))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (g,) = gradients
        y, s = ctx.saved_tensors
        dy, ds = passes.scaled_gradient(passes.innermost_channels(g), y, s)
        return dy, ds, None if ctx.of_x is None else g.to(ctx.of_x)


def normalize(
    y: Tensor,
    q: Tensor | None,
    x: Tensor | None,
    s: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    r: Tensor | None,
    mean: Tensor | None,
    var: Tensor | None,
    training: bool,
    norm: Norm,
    world: World | None = None,
) -> Any:
    """z, or z and its input where the norm is `shared`."""
    if training:
        return Normalize.apply(y, q, x, s, weight, bias, r, mean, var, norm, world)
    return Rest.apply(y, q, x, s, weight, bias, r, mean, var, norm)


def normalizing(world: World | None) -> Callable[..., Any]:
    """`normalize` with the statistics of all processes of a world: a graph can hold functions, but not worlds."""
    return normalize if world is None else update_wrapper(partial(normalize, world=world), normalize)


def scale(y: Tensor, s: Tensor, x: Tensor | None = None) -> Tensor:
    """Channel c of member m times 1 + s_mc, plus x."""
    result: Tensor = Scale.apply(y, s, x)
    return result


def scale_features(y: Tensor, s: Tensor) -> Tensor:
    """Feature c of member m times 1 + s_mc, for `[M * B, ..., C]`."""
    return scale(y.reshape(-1, y.shape[-1]), s).reshape(y.shape)
