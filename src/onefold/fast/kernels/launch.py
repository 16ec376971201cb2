"""The passes described in `fast/passes.py`, as kernel launches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from onefold.fast.across import World
from onefold.fast.kernels.common import common_gradient_table_kernel, common_moments_kernel, own_moments_kernel
from onefold.fast.kernels.counters import taken
from onefold.fast.kernels.gradient_table import gradient_table_kernel
from onefold.fast.kernels.grid import Grid, power_of_two
from onefold.fast.kernels.moments import moments_kernel
from onefold.fast.kernels.rest import rest_gradient_kernel, rest_kernel
from onefold.fast.kernels.scale import scaled_gradient_kernel, scaled_sum_kernel
from onefold.fast.kernels.training import affine_kernel, gradient_kernel
from onefold.fast.norm import Learned, Moments, Norm, Running, Sum


def present(**given: Any) -> dict[str, bool]:
    """Flags that tell a kernel which of its arguments are present."""
    return {name: value is not None for name, value in given.items()}


def floats(y: Tensor, *shape: int) -> Tensor:
    return y.new_empty(shape, dtype=torch.float32)


def packed(*factors: Tensor | None) -> Iterator[Tensor | None]:
    """Contiguous factors, as kernels expect; those of several picked members are columns of a larger tensor."""
    return (None if t is None else t.contiguous() for t in factors)


def moments(
    y: Tensor, add: Sum, learned: Learned, running: Running | None, norm: Norm, world: World | None
) -> tuple[Tensor, Tensor]:
    m, grid = norm.members, Grid(y, norm.members, sums=True)
    add, learned = Sum(next(packed(add.q)), add.x), Learned(*packed(*learned))
    total = y if add.x is None else torch.empty_like(y)
    partial = floats(y, m, grid.splits, 3, grid.channels)
    summing = (y, *add, total, partial, taken(y.device, grid.blocks))
    sum_flags = present(SUM=add.x, HAS_Q=add.q)
    s, weight, bias, _ = learned
    inputs, constants = (s, weight, bias, *(running or (None, None))), (m, norm.momentum, norm.eps)
    flags = present(HAS_S=s, AFFINE=weight, TRACKED=running)
    if world is None:
        table = floats(y, 3 * m + 3, grid.channels)
        sizes = grid.sizes | grid.reduction
        moments_kernel[grid.programs](*summing, *inputs, table, *grid.extent, *constants, **sum_flags, **flags, **sizes)
        return total, table
    row, table = floats(y, 2 * m + 1, grid.channels), floats(y, 3 * m + 4, grid.channels)
    counted = grid.rows if world.counted else 0
    sizes = grid.sizes | grid.reduction
    own_moments_kernel[grid.programs](*summing, row, counted, *grid.extent, m, **sum_flags, **sizes)
    every = world.rows_of_all(row)
    processes = every.shape[0]
    sizes = grid.table | {"PROCESSES": power_of_two(processes)}
    common_moments_kernel[grid.tables](every, *inputs, table, grid.channels, processes, *constants, **flags, **sizes)
    return total, table


def affine(y: Tensor, a: Tensor, b: Tensor, r: Tensor | None, relu: bool, onto: Tensor | None) -> Tensor:
    grid, z = Grid(y, a.shape[0], sums=False), torch.empty_like(y)
    r = next(packed(r))
    flags = present(HAS_R=r, ONTO=onto)
    affine_kernel[grid.programs](y, a, b, r, onto, z, *grid.extent, RELU=relu, **flags, **grid.sizes)
    return z


def gradient_table(
    dz: Tensor, y: Tensor, table: Tensor, learned: Learned, norm: Norm, world: World | None, z: Tensor | None
) -> tuple[Tensor, Learned, Tensor | None]:
    m, grid = norm.members, Grid(y, norm.members, sums=True)
    learned = Learned(*packed(*learned))
    a, mean, _, b, *_ = Moments.of(table, m)
    partial, out = floats(y, m, grid.splits, 2, grid.channels), floats(y, 5 * m + 2, grid.channels)
    passed = None if z is None else torch.empty_like(dz)
    summing = (dz, y, a, b, mean, z, passed, partial, taken(y.device, grid.blocks))
    flags = present(HAS_S=learned.s, HAS_R=learned.r, AFFINE=learned.weight)
    sizes = grid.sizes | grid.reduction
    gradient_table_kernel[grid.programs](
        *summing, *learned, table, out, *grid.extent, m, RELU=norm.relu, GATED=z is not None, **flags, **sizes
    )
    if world is not None:
        sums = out[5 * m :].clone()  # dgamma and dbeta
        world.sum_([sums])
        rows = grid.rows if world.counted else 0
        extent = (rows, grid.channels, grid.splits, m)
        sizes = grid.table | grid.table_reduction
        common_gradient_table_kernel[grid.tables](partial, *learned, table, out, sums, *extent, **flags, **sizes)
    ds, dr, dgamma, dbeta = out[3 * m : 4 * m], out[4 * m : 5 * m], out[5 * m], out[5 * m + 1]
    return out[: 3 * m], learned.gradients(ds, dgamma, dbeta, dr), passed


def gradient(
    dz: Tensor, y: Tensor, a: Tensor, b: Tensor, coefficients: Tensor, also: Tensor | None, relu: bool
) -> Tensor:
    grid, dy = Grid(y, a.shape[0], sums=False), torch.empty_like(y)
    c1, c2, c3 = coefficients.unflatten(0, (3, a.shape[0]))
    inputs = (dz, y, a, b, c1, c2, c3, also)
    gradient_kernel[grid.programs](*inputs, dy, *grid.extent, RELU=relu, ALSO=also is not None, **grid.sizes)
    return dy


def rest(
    y: Tensor, add: Sum, learned: Learned, running: Running, norm: Norm, onto: Tensor | None
) -> tuple[Tensor, Tensor]:
    grid, z = Grid(y, norm.members, sums=False), torch.empty_like(y)
    add = Sum(next(packed(add.q)), add.x)
    total = y if add.x is None else torch.empty_like(y)
    s, weight, bias, r = packed(*learned)
    tensors = (y, *add, total, s, weight, bias, *running, r, onto, z)
    flags = present(SUM=add.x, HAS_Q=add.q, HAS_S=s, AFFINE=weight, HAS_R=r, ONTO=onto)
    rest_kernel[grid.programs](*tensors, *grid.extent, norm.eps, RELU=norm.relu, **flags, **grid.sizes)
    return total, z


def rest_gradient(
    dz: Tensor,
    y: Tensor | None,
    learned: Learned,
    running: Running,
    norm: Norm,
    also: Tensor | None,
    z: Tensor | None,
) -> tuple[Tensor, Tensor | None]:
    grid, dy = Grid(dz, norm.members, sums=False), torch.empty_like(dz)
    passed = None if z is None else torch.empty_like(dz)
    s, weight, bias, r = packed(*learned)
    tensors = (dz, y, s, weight, bias, *running, r, also, z, passed, dy)
    flags = present(RELU=y, HAS_S=s, AFFINE=weight, HAS_R=r, ALSO=also, GATED=z)
    rest_gradient_kernel[grid.programs](*tensors, *grid.extent, norm.eps, **flags, **grid.sizes)
    return dy, passed


def scaled_sum(y: Tensor, s: Tensor, x: Tensor | None) -> Tensor:
    grid, z = Grid(y, s.shape[0], sums=False), torch.empty_like(y)
    scaled_sum_kernel[grid.programs](y, s.contiguous(), x, z, *grid.extent, HAS_X=x is not None, **grid.sizes)
    return z


def scaled_gradient(g: Tensor, y: Tensor | None, s: Tensor) -> tuple[Tensor, Tensor | None]:
    grid, dy = Grid(g, s.shape[0], sums=y is not None), torch.empty_like(g)
    partial = None if y is None else floats(g, s.shape[0], grid.splits, grid.channels)
    tensors = (g, y, s.contiguous(), dy, partial)
    flags = {"SUMS": y is not None, "STAGES": grid.stages}
    scaled_gradient_kernel[grid.programs](*tensors, *grid.extent, **flags, **grid.sizes)
    return dy, None if partial is None else partial.sum(1)
