"""The tables of a batch shared by several processes, computed from what each of them sends to the others."""

from __future__ import annotations

import triton.language as tl

from onefold.fast.kernels.arrival import last_to_arrive
from onefold.fast.kernels.compiled import jit, wait_for_inputs
from onefold.fast.kernels.gradient_table import finish
from onefold.fast.kernels.moments import add_up, learned, own_moments, tabulate


@jit
def common_moments(every, channels, processes, members, m, c, live, PROCESSES: tl.constexpr):
    """Mean and variance of each member over all processes, and their number of rows, from `[processes, 2 M + 1, C]`."""
    p = tl.arange(0, PROCESSES)
    there = p < processes
    size = (2 * members + 1) * channels
    inside = live[:, None, :] & there[None, :, None]
    at = every + (m[:, None] * channels + p[None, :] * size)[:, :, None] + c[None, None, :]
    means = tl.load(at, mask=inside, other=0.0)
    variances = tl.load(at + members * channels, mask=inside, other=0.0)
    at = every + (p * size + 2 * members * channels)[:, None] + c[None, :]
    counts = tl.load(at, mask=there[:, None] & (c < channels)[None, :], other=0.0)
    total = tl.where(c < channels, tl.sum(counts, 0), 2.0)
    weights = (counts / total[None, :])[None, :, :]
    mean = tl.sum(weights * means, 1)
    apart = means - mean[:, None, :]
    return mean, tl.sum(weights * (variances + apart * apart), 1), total


@jit
def own_moments_kernel(
    y,
    q,
    x,
    total,
    partial,
    counters,
    row,
    count,
    rows,
    channels,
    chunk,
    members,
    SUM: tl.constexpr,
    HAS_Q: tl.constexpr,
    MEMBERS: tl.constexpr,
    PARTS: tl.constexpr,
    STAGES: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """`moments_kernel` up to the row `[2 M + 1, C]` that a process sends: mean and variance of each member, count."""
    wait_for_inputs()
    add_up(y, q, x, total, partial, rows, channels, chunk, SUM, HAS_Q, ROWS, CHANNELS, STAGES)
    splits, block = tl.num_programs(1), tl.program_id(2)
    if last_to_arrive(counters + block, members * splits):
        c, m = block * CHANNELS + tl.arange(0, CHANNELS), tl.arange(0, MEMBERS)
        there = c < channels
        live = (m < members)[:, None] & there[None, :]
        mean, var = own_moments(partial, rows, channels, splits, m, c, live, MEMBERS, PARTS, CHANNELS)
        own = m[:, None] * channels + c[None, :]
        tl.store(row + own, mean, mask=live)
        tl.store(row + members * channels + own, var, mask=live)
        tl.store(row + 2 * members * channels + c, tl.zeros([CHANNELS], tl.float32) + count, mask=there)


@jit
def common_moments_kernel(
    every,
    s,
    weight,
    bias,
    running_mean,
    running_var,
    table,
    channels,
    processes,
    members,
    momentum,
    eps,
    HAS_S: tl.constexpr,
    AFFINE: tl.constexpr,
    TRACKED: tl.constexpr,
    MEMBERS: tl.constexpr,
    PROCESSES: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """The table from what all processes sent; its last row is their total number of rows."""
    wait_for_inputs()
    c, m = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS), tl.arange(0, MEMBERS)
    live = (m < members)[:, None] & (c < channels)[None, :]
    factor, gamma, beta, old_mean, old_var = learned(
        s, weight, bias, running_mean, running_var, channels, m, c, live, HAS_S, AFFINE, TRACKED
    )
    mean, var, total = common_moments(every, channels, processes, members, m, c, live, PROCESSES)
    tl.store(table + (3 * members + 3) * channels + c, total, mask=c < channels)
    tabulate(
        mean,
        var,
        total,
        factor,
        gamma,
        beta,
        old_mean,
        old_var,
        running_mean,
        running_var,
        table,
        channels,
        members,
        momentum,
        eps,
        m,
        c,
        live,
        TRACKED,
    )


@jit
def common_gradient_table_kernel(
    partial,
    s,
    weight,
    bias,
    r,
    table,
    out,
    sums,
    rows,
    channels,
    splits,
    members,
    HAS_S: tl.constexpr,
    HAS_R: tl.constexpr,
    AFFINE: tl.constexpr,
    MEMBERS: tl.constexpr,
    PARTS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """`finish` again, now with dgamma and dbeta summed over all processes, on which everything else depends."""
    wait_for_inputs()
    c, m = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS), tl.arange(0, MEMBERS)
    finish(
        partial,
        s,
        weight,
        bias,
        r,
        table,
        out,
        sums,
        rows,
        channels,
        splits,
        members,
        m,
        c,
        HAS_S,
        HAS_R,
        AFFINE,
        True,
        MEMBERS,
        PARTS,
        CHANNELS,
    )
