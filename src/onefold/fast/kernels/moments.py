"""BatchNorm in training: the moments of a batch."""

from __future__ import annotations

import triton.language as tl

from onefold.fast.kernels.arrival import last_to_arrive
from onefold.fast.kernels.compiled import jit, wait_for_inputs


@jit
def add_up(
    y,
    q,
    x,
    total,
    partial,
    rows,
    channels,
    chunk,
    SUM: tl.constexpr,
    HAS_Q: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Sums of v - k and of its square over a chunk of a member's rows; the shift k is the member's first row.

    v is y or, if SUM is set, total = (1 + q) y + x, which is stored as well. partial `[M, splits, 3, C]`: both sums,
    and k. Shifting by a value from the data keeps the variance accurate even if the mean is large.
    """
    member, split, block = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    splits = tl.num_programs(1)
    c = block * CHANNELS + tl.arange(0, CHANNELS)
    there = c < channels
    base = member.to(tl.int64) * rows * channels
    k = tl.load(y + base + c, mask=there, other=0.0).to(tl.float32)
    if SUM:
        if HAS_Q:
            factor = 1.0 + tl.load(q + member * channels + c, mask=there, other=0.0)
            k = k * factor
        k += tl.load(x + base + c, mask=there, other=0.0).to(tl.float32)
    first, second = tl.zeros([ROWS, CHANNELS], tl.float32), tl.zeros([ROWS, CHANNELS], tl.float32)
    start, end = split * chunk, min(split * chunk + chunk, rows)
    for row in tl.range(start, end, ROWS, num_stages=STAGES):
        r = row + tl.arange(0, ROWS)
        here = (r < end)[:, None] & there[None, :]
        offset = base + r.to(tl.int64)[:, None] * channels + c[None, :]
        value = tl.load(y + offset, mask=here, other=0.0).to(tl.float32)
        if SUM:
            if HAS_Q:
                value = value * factor[None, :]
            value += tl.load(x + offset, mask=here, other=0.0).to(tl.float32)
            kept = value.to(total.dtype.element_ty)
            tl.store(total + offset, kept, mask=here)
            value = kept.to(tl.float32)
        value = tl.where(here, value - k[None, :], 0.0)
        first += value
        second += value * value
    out = partial + (member * splits + split) * 3 * channels + c
    tl.store(out, tl.sum(first, 0), mask=there)
    tl.store(out + channels, tl.sum(second, 0), mask=there)
    tl.store(out + 2 * channels, k, mask=there)


@jit
def own_moments(
    partial, rows, channels, splits, m, c, live, MEMBERS: tl.constexpr, PARTS: tl.constexpr, CHANNELS: tl.constexpr
):
    """Mean and variance of each member `[MEMBERS, CHANNELS]`, from the sums over its chunks."""
    first, second = tl.zeros([MEMBERS, CHANNELS], tl.float32), tl.zeros([MEMBERS, CHANNELS], tl.float32)
    for start in range(0, splits, PARTS):
        part = start + tl.arange(0, PARTS)
        inside = live[:, None, :] & (part < splits)[None, :, None]
        at = partial + ((m[:, None] * splits + part[None, :]) * (3 * channels))[:, :, None] + c[None, None, :]
        first += tl.sum(tl.load(at, mask=inside, other=0.0, cache_modifier=".cg"), 1)
        second += tl.sum(tl.load(at + channels, mask=inside, other=0.0, cache_modifier=".cg"), 1)
    at = partial + (m * splits * 3 + 2)[:, None] * channels + c[None, :]
    k = tl.load(at, mask=live, other=0.0, cache_modifier=".cg")
    first, second = first / rows, second / rows
    return k + first, tl.maximum(second - first * first, 0.0)


@jit
def learned(
    s,
    weight,
    bias,
    running_mean,
    running_var,
    channels,
    m,
    c,
    live,
    HAS_S: tl.constexpr,
    AFFINE: tl.constexpr,
    TRACKED: tl.constexpr,
):
    """What does not depend on the batch: 1 + s, gamma, beta and the running statistics.

    Loaded before the sums are added up, so that the two overlap.
    """
    there = c < channels
    one = tl.where(there, 1.0, 1.0)
    own = m[:, None] * channels + c[None, :]
    factor = 1.0 + tl.load(s + own, mask=live, other=0.0) if HAS_S else tl.where(live, 1.0, 1.0)
    gamma = tl.load(weight + c, mask=there, other=0.0) if AFFINE else one
    beta = tl.load(bias + c, mask=there, other=0.0) if AFFINE else 0.0 * one
    old_mean = tl.load(running_mean + c, mask=there, other=0.0) if TRACKED else one
    old_var = tl.load(running_var + c, mask=there, other=0.0) if TRACKED else one
    return factor, gamma, beta, old_mean, old_var


@jit
def tabulate(
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
    TRACKED: tl.constexpr,
):
    """Computes table `[3 M + 3, C]` from the members' moments: a, mean, var of each member; b, mu, 1/sigma.

    Updates the running statistics. Works on all members at once, `[MEMBERS, CHANNELS]`, of which `members` are not
    padding; `total` is the number of rows of each.
    """
    there = c < channels
    own = m[:, None] * channels + c[None, :]
    last = table + 3 * members * channels + c
    scaled = mean * factor
    mu = tl.sum(tl.where(live, scaled, 0.0), 0) / members
    # The overall variance is the mean of the members' variances plus the variance of their means.
    apart = scaled - mu[None, :]
    spread = tl.sum(tl.where(live, var * factor * factor + apart * apart, 0.0), 0) / members
    rstd = 1.0 / tl.sqrt(spread + eps)
    slope = rstd * gamma
    tl.store(table + own, slope[None, :] * factor, mask=live)
    tl.store(table + members * channels + own, mean, mask=live)
    tl.store(table + 2 * members * channels + own, var, mask=live)
    tl.store(last, beta - mu * slope, mask=there)
    tl.store(last + channels, mu, mask=there)
    tl.store(last + 2 * channels, rstd, mask=there)
    if TRACKED:
        count = total * members
        tl.store(running_mean + c, old_mean + momentum * (mu - old_mean), mask=there)
        tl.store(running_var + c, old_var + momentum * (spread * (count / (count - 1.0)) - old_var), mask=there)


@jit
def moments_kernel(
    y,
    q,
    x,
    total,
    partial,
    counters,
    s,
    weight,
    bias,
    running_mean,
    running_var,
    table,
    rows,
    channels,
    chunk,
    members,
    momentum,
    eps,
    SUM: tl.constexpr,
    HAS_Q: tl.constexpr,
    HAS_S: tl.constexpr,
    AFFINE: tl.constexpr,
    TRACKED: tl.constexpr,
    MEMBERS: tl.constexpr,
    PARTS: tl.constexpr,
    STAGES: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """The whole pass: the last program to arrive in a block of channels makes its table from the sums of all."""
    wait_for_inputs()
    add_up(y, q, x, total, partial, rows, channels, chunk, SUM, HAS_Q, ROWS, CHANNELS, STAGES)
    splits, block = tl.num_programs(1), tl.program_id(2)
    if last_to_arrive(counters + block, members * splits):
        c, m = block * CHANNELS + tl.arange(0, CHANNELS), tl.arange(0, MEMBERS)
        live = (m < members)[:, None] & (c < channels)[None, :]
        factor, gamma, beta, old_mean, old_var = learned(
            s, weight, bias, running_mean, running_var, channels, m, c, live, HAS_S, AFFINE, TRACKED
        )
        mean, var = own_moments(partial, rows, channels, splits, m, c, live, MEMBERS, PARTS, CHANNELS)
        tabulate(
            mean,
            var,
            rows.to(tl.float32),
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
