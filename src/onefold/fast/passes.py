"""The passes over activations that a normalisation with members makes: in Triton on a GPU, in torch elsewhere.

Activations are `[M * B, C, ...]`; factors `[M, C]` come as offsets from one.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from onefold.fast.across import World, pooled, told

TILE = 8192  # elements a program holds at once
PROGRAMS = 256  # about two for each processor of an H100 or H200; a reduction has as many parts


def on_gpu(y: Tensor) -> bool:
    return y.is_cuda


def innermost_channels(x: Tensor) -> Tensor:
    """The same values with the channels innermost in memory."""
    if x.dim() == 2:
        return x.contiguous()
    if x.dim() == 4:
        return x.contiguous(memory_format=torch.channels_last)
    return x.movedim(1, -1).contiguous().movedim(-1, 1)


def by_member(x: Tensor, members: int) -> Tensor:
    """`[M, rows, C]`."""
    return x.movedim(1, -1).reshape(members, -1, x.shape[1])


def like(rows: Tensor, x: Tensor) -> Tensor:
    """`[M, rows, C]` in the shape, the type and the layout of x."""
    return torch.empty_like(x).copy_(rows.reshape(x.shape[0], *x.shape[2:], x.shape[1]).movedim(-1, 1))


def power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()


class Grid:
    """How a kernel divides `[M, rows, C]` among programs."""

    def __init__(self, y: Tensor, members: int, programs: int = PROGRAMS) -> None:
        self.channels = y.shape[1]
        self.rows = y.numel() // (members * self.channels)
        self.tile_channels = min(power_of_two(self.channels), 64)
        self.tile_rows = TILE // self.tile_channels
        blocks = -(-self.channels // self.tile_channels)
        splits = max(1, programs // (members * blocks))
        tiles = -(-self.rows // self.tile_rows)
        self.chunk = -(-tiles // min(splits, tiles)) * self.tile_rows
        self.splits = -(-self.rows // self.chunk)
        self.programs = (members, self.splits, blocks)
        self.sizes = {"ROWS": self.tile_rows, "CHANNELS": self.tile_channels, "num_warps": 8}
        self.reduction = {"SPLITS": max(16, power_of_two(self.splits)), "CHANNELS": 16, "num_warps": 4}
        self.reducers = (-(-self.channels // 16),)


class Sum(NamedTuple):
    """Another activation that is added on the way: (1 + q) y + x."""

    q: Tensor | None
    x: Tensor

    def of(self, y: Tensor, members: int) -> Tensor:
        values = by_member(y, members)
        values = values if self.q is None else values * (1 + self.q[:, None])
        return like(values + by_member(self.x, members), y)


def moments(
    y: Tensor,
    add: Sum | None,
    s: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    running: tuple[Tensor, Tensor] | None,
    momentum: float,
    eps: float,
    members: int,
    world: World | None = None,
) -> tuple[Tensor, Tensor]:
    """y, or its sum with something, and `[3 M + 3, C]`: a, mean and variance of each member, then b, mu and 1/sigma.

    (1 + s) y has the mean mu and the deviation sigma over members, images and pixels; a y + b is what BatchNorm makes
    of it. Updates the running statistics. Moments are those of all processes where a world is given; the table then
    has another row, the number of their rows.
    """
    if on_gpu(y):
        from onefold.fast import kernels

        grid = Grid(y, members)
        partial = y.new_empty((members, grid.splits, 3, grid.channels), dtype=torch.float32)
        table = y.new_empty((3 * members + (3 if world is None else 4), grid.channels), dtype=torch.float32)
        total = y if add is None else torch.empty_like(y)
        kernels.sums_kernel[grid.programs](
            y,
            *((None, None) if add is None else add),
            total,
            partial,
            grid.rows,
            grid.channels,
            grid.chunk,
            SUM=add is not None,
            HAS_Q=add is not None and add.q is not None,
            **grid.sizes,
        )
        parts, reduction = grid.splits, grid.reduction
        if world is not None:
            row = y.new_empty((2 * members + 1, grid.channels), dtype=torch.float32)
            sizes = (grid.rows if world.counted else 0, grid.rows, grid.channels, parts, members)
            kernels.own_moments_kernel[grid.reducers](partial, row, *sizes, MEMBERS=power_of_two(members), **reduction)
            partial = world.rows_of_all(row)
            parts = partial.shape[0]
            reduction = reduction | {"SPLITS": power_of_two(parts)}
        kernels.moments_kernel[grid.reducers](
            partial,
            s,
            weight,
            bias,
            *(running or (None, None)),
            table,
            grid.rows,
            grid.channels,
            parts,
            members,
            momentum,
            eps,
            MEMBERS=power_of_two(members),
            HAS_S=s is not None,
            AFFINE=weight is not None,
            TRACKED=running is not None,
            COMMON=world is not None,
            **reduction,
        )
        return total, table
    y = y if add is None else add.of(y, members)
    values = sums_type(by_member(y, members))
    var, mean = torch.var_mean(values, dim=1, correction=0)  # [M, C]
    rows: int | Tensor = values.shape[1]
    if world is not None:
        own = told(mean, var, values.shape[1] if world.counted else 0)
        mean, var, rows = pooled(world.rows_of_all(own), members)
    scale = torch.ones_like(mean) if s is None else 1 + s
    mu = (scale * mean).mean(0)
    variance = (scale**2 * var + (scale * mean - mu) ** 2).mean(0)
    rstd = (variance + eps).rsqrt()
    gamma = torch.ones_like(mu) if weight is None else weight
    beta = torch.zeros_like(mu) if bias is None else bias
    if running is not None:
        count = rows * members
        running[0].lerp_(mu.to(running[0].dtype), momentum)
        running[1].lerp_((variance * (count / (count - 1))).to(running[1].dtype), momentum)
    last = [beta - mu * gamma * rstd, mu, rstd, *([rows] if isinstance(rows, Tensor) else [])]
    return y, torch.cat([scale * gamma * rstd, mean, var, torch.stack(last)])


class Resting(NamedTuple):
    """What a normalisation at rest applies: (1 + s) y with the running statistics, gamma and beta."""

    s: Tensor | None
    weight: Tensor | None
    bias: Tensor | None
    mean: Tensor
    var: Tensor
    eps: float
    members: int

    def table(self) -> tuple[Tensor, Tensor]:
        """a `[M, C]` and b `[C]`."""
        rstd = (self.var + self.eps).rsqrt()
        gamma = rstd if self.weight is None else self.weight * rstd
        beta = torch.zeros_like(self.mean) if self.bias is None else self.bias
        scale = torch.ones_like(self.mean).expand(self.members, -1) if self.s is None else 1 + self.s
        return scale * gamma, beta - self.mean * gamma


def rest(y: Tensor, add: Sum | None, at: Resting, r: Tensor | None, relu: bool) -> tuple[Tensor, Tensor]:
    """y, or its sum with something, and relu(a y + b) (1 + r) of it, with the running statistics."""
    if on_gpu(y):
        from onefold.fast import kernels

        grid, z = Grid(y, at.members, 4 * PROGRAMS), torch.empty_like(y)
        total = y if add is None else torch.empty_like(y)
        kernels.rest_kernel[grid.programs](
            y,
            *((None, None) if add is None else add),
            total,
            *at[:5],
            r,
            z,
            grid.rows,
            grid.channels,
            grid.chunk,
            at.eps,
            SUM=add is not None,
            HAS_Q=add is not None and add.q is not None,
            HAS_S=at.s is not None,
            AFFINE=at.weight is not None,
            RELU=relu,
            HAS_R=r is not None,
            **grid.sizes,
        )
        return total, z
    y = y if add is None else add.of(y, at.members)
    return y, affine(y, *at.table(), r, relu)


def rest_gradient(dz: Tensor, y: Tensor | None, at: Resting, r: Tensor | None, also: Tensor | None) -> Tensor:
    """a (1 + r) g + also; y is given where an activation decides which part of dz passes."""
    if on_gpu(dz):
        from onefold.fast import kernels

        grid, dy = Grid(dz, at.members, 4 * PROGRAMS), torch.empty_like(dz)
        kernels.rest_gradient_kernel[grid.programs](
            dz,
            y,
            *at[:5],
            r,
            also,
            dy,
            grid.rows,
            grid.channels,
            grid.chunk,
            at.eps,
            HAS_S=at.s is not None,
            AFFINE=at.weight is not None,
            RELU=y is not None,
            HAS_R=r is not None,
            ALSO=also is not None,
            **grid.sizes,
        )
        return dy
    a, b = at.table()
    g = by_member(dz, at.members)
    g = g if y is None else torch.where(by_member(y, at.members) * a[:, None] + b > 0, g, 0.0)
    dy = g * (a if r is None else a * (1 + r))[:, None]
    return like(dy if also is None else dy + by_member(also, at.members), dz)


def affine(y: Tensor, a: Tensor, b: Tensor, r: Tensor | None, relu: bool) -> Tensor:
    """relu(a y + b) (1 + r)."""
    members = a.shape[0]
    if on_gpu(y):
        from onefold.fast import kernels

        grid, z = Grid(y, members, 4 * PROGRAMS), torch.empty_like(y)
        kernels.affine_kernel[grid.programs](
            y, a, b, r, z, grid.rows, grid.channels, grid.chunk, RELU=relu, HAS_R=r is not None, **grid.sizes
        )
        return z
    z = by_member(y, members) * a[:, None] + b
    z = z.relu() if relu else z
    return like(z if r is None else z * (1 + r[:, None]), y)


def gradient_table(
    dz: Tensor,
    y: Tensor,
    table: Tensor,
    s: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    r: Tensor | None,
    relu: bool,
    members: int,
    world: World | None = None,
) -> Tensor:
    """`[5 M + 2, C]`: c1, c2, c3, ds and dr of each member, then dgamma and dbeta.

    With g = dz where the activation lets it through, the gradient of y is c1 g + c2 y + c3, and everything else
    follows from the members' sums of g and g y and from the moments of y. In a world the gradients are this process's
    part: those of all processes add up to the whole.
    """
    m = members
    a, mean, var, b, mu, rstd = table[:m], table[m : 2 * m], table[2 * m : 3 * m], *table[3 * m : 3 * m + 3]
    if on_gpu(y):
        from onefold.fast import kernels

        grid = Grid(y, members)
        partial = y.new_empty((members, grid.splits, 2, grid.channels), dtype=torch.float32)
        out = y.new_empty((5 * members + 2, grid.channels), dtype=torch.float32)
        kernels.gradient_sums_kernel[grid.programs](
            dz, y, a, b, mean, partial, grid.rows, grid.channels, grid.chunk, RELU=relu, **grid.sizes
        )

        def tabulate(rows: int, sums: Tensor | None) -> None:
            kernels.gradient_table_kernel[grid.reducers](
                partial,
                s,
                weight,
                bias,
                r,
                table,
                out,
                sums,
                rows,
                grid.channels,
                grid.splits,
                members,
                MEMBERS=power_of_two(members),
                HAS_S=s is not None,
                HAS_R=r is not None,
                AFFINE=weight is not None,
                COMMON=sums is not None,
                **grid.reduction,
            )

        tabulate(grid.rows, None)
        if world is not None:  # once more, with dgamma and dbeta of all: everything else hangs on them
            sums = out[5 * m :].clone()
            world.sum_([sums])
            tabulate(grid.rows if world.counted else 0, sums)
        return out
    values, g = sums_type(by_member(y, m)), sums_type(by_member(dz, m))
    g = torch.where(values * a[:, None] + b > 0, g, 0.0) if relu else g
    first, second = g.sum(1), (g * (values - mean[:, None])).sum(1)  # [M, C]
    scale = torch.ones_like(mean) if s is None else 1 + s
    factor = torch.ones_like(mean) if r is None else 1 + r
    gamma = torch.ones_like(mu) if weight is None else weight
    beta = torch.zeros_like(mu) if bias is None else bias
    normal = rstd * (scale * second + (scale * mean - mu) * first)
    dbeta, dgamma = (factor * first).sum(0), (factor * normal).sum(0)
    rows = values.shape[1]
    if world is None:
        of_mean, of_value = dbeta / (rows * m), dgamma / (rows * m)
    else:
        rows = rows if world.counted else 0  # the statistics do not depend on what does not count
        sums = torch.stack([dgamma, dbeta])
        world.sum_([sums])
        of_value, of_mean = sums / (table[3 * m + 3] * m) if world.counted else torch.zeros_like(sums)
    products = rows * rstd * (scale * var + mean * (scale * mean - mu))
    return torch.cat(
        [
            scale * factor * gamma * rstd,
            -(scale**2) * gamma * rstd**2 * of_value,
            -scale * gamma * rstd * (of_mean - mu * rstd * of_value),
            gamma * rstd * (factor * (second + mean * first) - of_mean * rows * mean - of_value * products),
            gamma * normal + beta * first,
            torch.stack([dgamma, dbeta]),
        ]
    )


def gradient(
    dz: Tensor, y: Tensor, a: Tensor, b: Tensor, coefficients: Tensor, also: Tensor | None, relu: bool
) -> Tensor:
    """c1 g + c2 y + c3 + also, with `coefficients` `[3 M, C]`."""
    m = a.shape[0]
    c1, c2, c3 = coefficients.unflatten(0, (3, m))
    if on_gpu(y):
        from onefold.fast import kernels

        grid, dy = Grid(y, m, 4 * PROGRAMS), torch.empty_like(y)
        kernels.gradient_kernel[grid.programs](
            dz,
            y,
            a,
            b,
            c1,
            c2,
            c3,
            also,
            dy,
            grid.rows,
            grid.channels,
            grid.chunk,
            RELU=relu,
            ALSO=also is not None,
            **grid.sizes,
        )
        return dy
    values, g = by_member(y, m), by_member(dz, m)
    g = torch.where(values * a[:, None] + b > 0, g, 0.0) if relu else g
    dy = c1[:, None] * g + c2[:, None] * values + c3[:, None]
    return like(dy if also is None else dy + by_member(also, m), y)


def scaled_sum(y: Tensor, s: Tensor, x: Tensor | None) -> Tensor:
    """(1 + s) y + x."""
    m = s.shape[0]
    if on_gpu(y):
        from onefold.fast import kernels

        grid, z = Grid(y, m, 4 * PROGRAMS), torch.empty_like(y)
        kernels.scaled_sum_kernel[grid.programs](
            y, s, x, z, grid.rows, grid.channels, grid.chunk, HAS_X=x is not None, **grid.sizes
        )
        return z
    z = by_member(y, m) * (1 + s[:, None])
    return like(z if x is None else z + by_member(x, m), y)


def scaled_gradient(g: Tensor, y: Tensor | None, s: Tensor) -> tuple[Tensor, Tensor | None]:
    """(1 + s) g, and the sums of g y `[M, C]` where y is given."""
    m = s.shape[0]
    if on_gpu(g):
        from onefold.fast import kernels

        grid, dy = Grid(g, m, PROGRAMS if y is not None else 4 * PROGRAMS), torch.empty_like(g)
        partial = None if y is None else g.new_empty((m, grid.splits, grid.channels), dtype=torch.float32)
        kernels.scaled_gradient_kernel[grid.programs](
            g, y, s, dy, partial, grid.rows, grid.channels, grid.chunk, SUMS=y is not None, **grid.sizes
        )
        return dy, None if partial is None else partial.sum(1)
    of_z = by_member(g, m)
    sums = None if y is None else (sums_type(of_z) * sums_type(by_member(y, m))).sum(1)
    return like(of_z * (1 + s[:, None]), g), sums


def sums_type(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))
