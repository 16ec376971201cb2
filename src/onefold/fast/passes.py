"""The passes over activations that a normalisation with members makes, written in torch.

These run on a CPU, and are the reference for the kernels. On a GPU the kernels run instead: `kernels/launch.py` has a
function of the same name for every pass. Activations are `[M * B, C, ...]` in channels-last.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import torch
from torch import Tensor

from onefold.fast.across import World, own_row, pooled
from onefold.fast.ahead import only_asked
from onefold.fast.layout import by_member, like
from onefold.fast.norm import Learned, Moments, Norm, Running, Sum
from onefold.types import at_least_float32

P = ParamSpec("P")
T = TypeVar("T")


def on_gpu(y: Tensor) -> bool:
    """Whether to use the kernels, which are imported only then: a machine without a GPU may not have Triton."""
    return y.is_cuda


def kernels_of(module: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """A decorator for functions that describe a pass: on a GPU, calls the function of the same name in a module of
    `kernels` instead. While kernels are only being compiled ahead, calls it to request them, then the description."""

    def by_kernels(description: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(description)
        def by_either(*args: P.args, **kwargs: P.kwargs) -> T:
            if on_gpu(cast(Tensor, args[0])):
                launch = importlib.import_module(f"onefold.fast.kernels.{module}")
                made: T = getattr(launch, description.__name__)(*args, **kwargs)
                if not only_asked():
                    return made
            return description(*args, **kwargs)

        return by_either

    return by_kernels


by_kernels = kernels_of("launch")


@by_kernels
def moments(
    y: Tensor, add: Sum, learned: Learned, running: Running | None, norm: Norm, world: World | None
) -> tuple[Tensor, Tensor]:
    """y, or its sum with `add`, and the table of its `Moments`. Updates the running statistics.

    With a world, the moments are over all processes, and the table has one more row: their number of rows.
    """
    y = y if add.x is None else summed(y, *add, norm.members)
    values = at_least_float32(by_member(y, norm.members))
    var, mean = torch.var_mean(values, dim=1, correction=0)  # [M, C]
    rows: int | Tensor = values.shape[1]
    if world is not None:
        own = own_row(mean, var, values.shape[1] if world.counted else 0)
        mean, var, rows = pooled(world.rows_of_all(own), norm.members)
    scale, gamma, beta, _ = learned.filled(mean)
    mu = (scale * mean).mean(0)
    variance = (scale**2 * var + (scale * mean - mu) ** 2).mean(0)
    rstd = (variance + norm.eps).rsqrt()
    if running is not None:
        count = rows * norm.members
        running[0].lerp_(mu.to(running[0].dtype), norm.momentum)
        running[1].lerp_((variance * (count / (count - 1))).to(running[1].dtype), norm.momentum)
    last = [beta - mu * gamma * rstd, mu, rstd, *([rows] if isinstance(rows, Tensor) else [])]
    return y, torch.cat([scale * gamma * rstd, mean, var, torch.stack(last)])


@by_kernels
def affine(y: Tensor, a: Tensor, b: Tensor, r: Tensor | None, relu: bool, onto: Tensor | None) -> Tensor:
    """relu(a y + b + onto) (1 + r)."""
    return like(activated(by_member(y, a.shape[0]), a, b, r, relu, onto), y)


@by_kernels
def gradient_table(
    dz: Tensor, y: Tensor, table: Tensor, learned: Learned, norm: Norm, world: World | None, z: Tensor | None
) -> tuple[Tensor, Learned, Tensor | None]:
    """c1, c2 and c3 `[3 M, C]`, and the gradients of what is learned; if z is given, g as well.

    g is dz where the activation lets it through, and zero elsewhere; if something was added before the activation,
    z != 0 shows where it does. The gradient of y is c1 g + c2 y + c3, and everything else follows from the members'
    sums of g and g y and from the moments of y. With a world the gradients are this process's part of the total.
    """
    m = norm.members
    a, mean, var, b, mu, rstd = Moments.of(table, m)
    values = at_least_float32(by_member(y, m))
    passed = None if z is None else torch.where(z != 0, dz, 0.0)
    g = at_least_float32(by_member(dz if passed is None else passed, m))
    g = let_through(g, values, a, b) if norm.relu and z is None else g
    first, second = g.sum(1), (g * (values - mean[:, None])).sum(1)  # [M, C]
    scale, gamma, beta, factor = learned.filled(mean)
    normal = rstd * (scale * second + (scale * mean - mu) * first)  # sums of g times the normalised value
    dbeta, dgamma = (factor * first).sum(0), (factor * normal).sum(0)
    rows = values.shape[1]
    if world is None:
        of_mean, of_value = dbeta / (rows * m), dgamma / (rows * m)
    else:
        rows = rows if world.counted else 0  # a stand-in's rows do not contribute to the statistics
        sums = torch.stack([dgamma, dbeta])
        world.sum_([sums])
        of_value, of_mean = sums / (table[-1] * m) if world.counted else torch.zeros_like(sums)
    c1 = scale * factor * gamma * rstd
    c2 = -(scale**2) * gamma * rstd**2 * of_value
    c3 = -scale * gamma * rstd * (of_mean - mu * rstd * of_value)
    products = rows * rstd * (scale * var + mean * (scale * mean - mu))  # sums of y times the normalised value
    ds = gamma * rstd * (factor * (second + mean * first) - of_mean * rows * mean - of_value * products)
    dr = gamma * normal + beta * first
    return torch.cat([c1, c2, c3]), learned.gradients(ds, dgamma, dbeta, dr), passed


@by_kernels
def gradient(
    dz: Tensor, y: Tensor, a: Tensor, b: Tensor, coefficients: Tensor, also: Tensor | None, relu: bool
) -> Tensor:
    """c1 g + c2 y + c3 + also, with `coefficients` `[3 M, C]`."""
    m = a.shape[0]
    c1, c2, c3 = coefficients.unflatten(0, (3, m))
    values, g = by_member(y, m), by_member(dz, m)
    g = let_through(g, values, a, b) if relu else g
    dy = c1[:, None] * g + c2[:, None] * values + c3[:, None]
    return like(dy if also is None else dy + by_member(also, m), y)


@by_kernels
def rest(
    y: Tensor, add: Sum, learned: Learned, running: Running, norm: Norm, onto: Tensor | None
) -> tuple[Tensor, Tensor]:
    """y, or its sum with `add`, and relu(a y + b + onto) (1 + r) of it, with a and b from the running statistics."""
    y = y if add.x is None else summed(y, *add, norm.members)
    a, b = at_rest(learned, running, norm)
    return y, like(activated(by_member(y, norm.members), a, b, learned.r, norm.relu, onto), y)


@by_kernels
def rest_gradient(
    dz: Tensor,
    y: Tensor | None,
    learned: Learned,
    running: Running,
    norm: Norm,
    also: Tensor | None,
    z: Tensor | None,
) -> tuple[Tensor, Tensor | None]:
    """a (1 + r) g + also; and g if z is given. g is dz where the activation lets it through, as y or z shows."""
    a, b = at_rest(learned, running, norm)
    passed = None if z is None else torch.where(z != 0, dz, 0.0)
    g = by_member(dz if passed is None else passed, norm.members)
    g = g if y is None or z is not None else let_through(g, by_member(y, norm.members), a, b)
    dy = g * (a if learned.r is None else a * (1 + learned.r))[:, None]
    return like(dy if also is None else dy + by_member(also, norm.members), dz), passed


@by_kernels
def scaled_sum(y: Tensor, s: Tensor, x: Tensor | None) -> Tensor:
    """(1 + s) y + x."""
    return summed(y, s, x, s.shape[0])


@by_kernels
def scaled_gradient(g: Tensor, y: Tensor | None, s: Tensor) -> tuple[Tensor, Tensor | None]:
    """(1 + s) g; and the sums of g y `[M, C]` if y is given."""
    m = s.shape[0]
    of_z = by_member(g, m)
    sums = None if y is None else (at_least_float32(of_z) * at_least_float32(by_member(y, m))).sum(1)
    return like(of_z * (1 + s[:, None]), g), sums


# Parts shared by several passes. Values are `[M, rows, C]`; a is `[M, C]`, b `[C]`.


def summed(y: Tensor, q: Tensor | None, x: Tensor | None, members: int) -> Tensor:
    """(1 + q) y + x."""
    values = by_member(y, members)
    values = values if q is None else values * (1 + q[:, None])
    return like(values if x is None else values + by_member(x, members), y)


def at_rest(learned: Learned, running: Running, norm: Norm) -> tuple[Tensor, Tensor]:
    """a and b from the running statistics."""
    mean, var = running
    scale, gamma, beta, _ = learned.filled(mean.expand(norm.members, -1))
    slope = gamma * (var + norm.eps).rsqrt()
    return scale * slope, beta - mean * slope


def activated(values: Tensor, a: Tensor, b: Tensor, r: Tensor | None, relu: bool, onto: Tensor | None = None) -> Tensor:
    z = values * a[:, None] + b
    z = z if onto is None else z + by_member(onto, a.shape[0])
    z = z.relu() if relu else z
    return z if r is None else z * (1 + r[:, None])


def let_through(g: Tensor, values: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """g where the activation's input is positive, else zero."""
    return torch.where(values * a[:, None] + b > 0, g, 0.0)
