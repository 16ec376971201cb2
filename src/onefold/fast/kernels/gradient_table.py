"""BatchNorm in training, backward: the sums of a gradient, and everything that follows from them."""

from __future__ import annotations

import triton.language as tl

from onefold.fast.kernels.arrival import last_to_arrive
from onefold.fast.kernels.compiled import jit, wait_for_inputs


@jit
def add_up_gradient(
    dz,
    y,
    a,
    b,
    k,
    z,
    passed,
    partial,
    rows,
    channels,
    chunk,
    RELU: tl.constexpr,
    GATED: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Sums of g and of g (y - k) over a chunk of a member's rows; g is dz where the activation lets it through, else 0.

    partial `[M, splits, 2, C]`; k `[M, C]`. If GATED is set, z != 0 shows where it does, and g is stored in passed.
    """
    member, split, block = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    splits = tl.num_programs(1)
    c = block * CHANNELS + tl.arange(0, CHANNELS)
    there = c < channels
    scale = tl.load(a + member * channels + c, mask=there, other=0.0)
    shift = tl.load(b + c, mask=there, other=0.0)
    centre = tl.load(k + member * channels + c, mask=there, other=0.0)
    base = member.to(tl.int64) * rows * channels
    first, second = tl.zeros([ROWS, CHANNELS], tl.float32), tl.zeros([ROWS, CHANNELS], tl.float32)
    start, end = split * chunk, min(split * chunk + chunk, rows)
    for row in tl.range(start, end, ROWS, num_stages=STAGES):
        at = row + tl.arange(0, ROWS)
        here = (at < end)[:, None] & there[None, :]
        offset = base + at.to(tl.int64)[:, None] * channels + c[None, :]
        g = tl.load(dz + offset, mask=here, other=0.0).to(tl.float32)
        value = tl.load(y + offset, mask=here, other=0.0).to(tl.float32)
        if GATED:
            g = tl.where(tl.load(z + offset, mask=here, other=0.0).to(tl.float32) != 0, g, 0.0)
            tl.store(passed + offset, g, mask=here)
        elif RELU:
            g = tl.where(value * scale[None, :] + shift[None, :] > 0, g, 0.0)
        first += g
        second += g * (value - centre[None, :])
    out = partial + (member * splits + split) * 2 * channels + c
    tl.store(out, tl.sum(first, 0), mask=there)
    tl.store(out + channels, tl.sum(second, 0), mask=there)


@jit
def finish(
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
    HAS_S: tl.constexpr,
    HAS_R: tl.constexpr,
    AFFINE: tl.constexpr,
    COMMON: tl.constexpr,
    MEMBERS: tl.constexpr,
    PARTS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """Computes out `[5 M + 2, C]` from the gradient's sums: c1, c2, c3, ds, dr of each member; dgamma, dbeta.

    If COMMON is set, sums `[2, C]` are dgamma and dbeta of all processes, and `rows` is this process's number of rows
    that count.
    """
    there = c < channels
    live = (m < members)[:, None] & there[None, :]
    own = m[:, None] * channels + c[None, :]
    # Loaded before the sums are added up, so that the two overlap.
    mean = tl.load(table + members * channels + own, mask=live, other=0.0)
    var = tl.load(table + 2 * members * channels + own, mask=live, other=0.0)
    last = table + 3 * members * channels + c
    mu = tl.load(last + channels, mask=there, other=0.0)[None, :]
    rstd = tl.load(last + 2 * channels, mask=there, other=0.0)[None, :]
    gamma = tl.load(weight + c, mask=there, other=0.0)[None, :] if AFFINE else tl.where(there, 1.0, 1.0)[None, :]
    beta = tl.load(bias + c, mask=there, other=0.0)[None, :] if AFFINE else tl.where(there, 0.0, 0.0)[None, :]
    scale = 1.0 + tl.load(s + own, mask=live, other=0.0) if HAS_S else tl.where(live, 1.0, 1.0)
    factor = 1.0 + tl.load(r + own, mask=live, other=0.0) if HAS_R else tl.where(live, 1.0, 1.0)
    first, second = tl.zeros([MEMBERS, CHANNELS], tl.float32), tl.zeros([MEMBERS, CHANNELS], tl.float32)
    for start in range(0, splits, PARTS):
        part = start + tl.arange(0, PARTS)
        inside = live[:, None, :] & (part < splits)[None, :, None]
        at = partial + ((m[:, None] * splits + part[None, :]) * (2 * channels))[:, :, None] + c[None, None, :]
        first += tl.sum(tl.load(at, mask=inside, other=0.0, cache_modifier=".cg"), 1)
        second += tl.sum(tl.load(at + channels, mask=inside, other=0.0, cache_modifier=".cg"), 1)
    normal = rstd * (scale * second + (scale * mean - mu) * first)  # sums of g times the normalised value
    dbeta = tl.sum(tl.where(live, factor * first, 0.0), 0)
    dgamma = tl.sum(tl.where(live, factor * normal, 0.0), 0)
    if COMMON:
        # A stand-in's rows do not contribute to the statistics.
        inverse = tl.where(rows > 0, 1.0, 0.0) / (tl.load(last + 3 * channels, mask=there, other=1.0) * members)
        of_mean = (tl.load(sums + channels + c, mask=there, other=0.0) * inverse)[None, :]
        of_value = (tl.load(sums + c, mask=there, other=0.0) * inverse)[None, :]
    else:
        count = rows.to(tl.float32) * members
        of_mean, of_value = (dbeta / count)[None, :], (dgamma / count)[None, :]
    slope = gamma * rstd
    tl.store(out + own, scale * factor * slope, mask=live)
    tl.store(out + members * channels + own, -scale * scale * slope * rstd * of_value, mask=live)
    tl.store(out + 2 * members * channels + own, -scale * slope * (of_mean - mu * rstd * of_value), mask=live)
    products = rows * rstd * (scale * var + mean * (scale * mean - mu))  # sums of y times the normalised value
    ds = slope * (factor * (second + mean * first) - of_mean * rows * mean - of_value * products)
    tl.store(out + 3 * members * channels + own, ds, mask=live)
    tl.store(out + 4 * members * channels + own, gamma * normal + beta * first, mask=live)
    tl.store(out + 5 * members * channels + c, dgamma, mask=there)
    tl.store(out + (5 * members + 1) * channels + c, dbeta, mask=there)


@jit
def gradient_table_kernel(
    dz,
    y,
    a,
    b,
    k,
    z,
    passed,
    partial,
    counters,
    s,
    weight,
    bias,
    r,
    table,
    out,
    rows,
    channels,
    chunk,
    members,
    RELU: tl.constexpr,
    GATED: tl.constexpr,
    HAS_S: tl.constexpr,
    HAS_R: tl.constexpr,
    AFFINE: tl.constexpr,
    MEMBERS: tl.constexpr,
    PARTS: tl.constexpr,
    STAGES: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """The whole pass: the last program to arrive in a block of channels finishes with the sums of all."""
    wait_for_inputs()
    add_up_gradient(dz, y, a, b, k, z, passed, partial, rows, channels, chunk, RELU, GATED, ROWS, CHANNELS, STAGES)
    splits, block = tl.num_programs(1), tl.program_id(2)
    if last_to_arrive(counters + block, members * splits):
        c, m = block * CHANNELS + tl.arange(0, CHANNELS), tl.arange(0, MEMBERS)
        finish(
            partial,
            s,
            weight,
            bias,
            r,
            table,
            out,
            partial,
            rows,
            channels,
            splits,
            members,
            m,
            c,
            HAS_S,
            HAS_R,
            AFFINE,
            False,
            MEMBERS,
            PARTS,
            CHANNELS,
        )
