"""LayerNorm over the features of `[rows, C]`; each program holds whole rows."""

from __future__ import annotations

import triton.language as tl

from onefold.fast.kernels.compiled import jit, wait_for_inputs


@jit
def normalized_kernel(
    y,
    x,
    weight,
    bias,
    total,
    z,
    mean,
    rstd,
    rows,
    channels,
    eps,
    SUM: tl.constexpr,
    AFFINE: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """total = y + x if SUM is set, else y; and its LayerNorm z."""
    wait_for_inputs()
    at = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, CHANNELS)
    there, here = c < channels, at < rows
    inside = here[:, None] & there[None, :]
    offset = at.to(tl.int64)[:, None] * channels + c[None, :]
    value = tl.load(y + offset, mask=inside, other=0.0).to(tl.float32)
    if SUM:
        value += tl.load(x + offset, mask=inside, other=0.0).to(tl.float32)
        kept = value.to(total.dtype.element_ty)
        tl.store(total + offset, kept, mask=inside)
        value = kept.to(tl.float32)
    mu = tl.sum(value, 1) / channels
    apart = tl.where(inside, value - mu[:, None], 0.0)
    rs = 1.0 / tl.sqrt(tl.sum(apart * apart, 1) / channels + eps)
    result = apart * rs[:, None]
    if AFFINE:
        gamma = tl.load(weight + c, mask=there, other=0.0).to(tl.float32)
        beta = tl.load(bias + c, mask=there, other=0.0).to(tl.float32)
        result = result * gamma[None, :] + beta[None, :]
    tl.store(z + offset, result, mask=inside)
    tl.store(mean + at, mu, mask=here)
    tl.store(rstd + at, rs, mask=here)


@jit
def normalized_gradient_kernel(
    dz,
    total,
    weight,
    mean,
    rstd,
    also,
    dt,
    copy,
    partial,
    rows,
    channels,
    chunk,
    AFFINE: tl.constexpr,
    ALSO: tl.constexpr,
    COPY: tl.constexpr,
    LEARNS: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """dt for a chunk of rows, and a copy if COPY is set; partial `[programs, 2, C]`: sums of g n and of g."""
    wait_for_inputs()
    program = tl.program_id(0)
    c = tl.arange(0, CHANNELS)
    there = c < channels
    gamma = tl.load(weight + c, mask=there, other=0.0).to(tl.float32) if AFFINE else tl.where(there, 1.0, 0.0)
    of_gamma, of_beta = tl.zeros([ROWS, CHANNELS], tl.float32), tl.zeros([ROWS, CHANNELS], tl.float32)
    start, end = program * chunk, min(program * chunk + chunk, rows)
    for row in range(start, end, ROWS):
        at = row + tl.arange(0, ROWS)
        here = at < end
        inside = here[:, None] & there[None, :]
        offset = at.to(tl.int64)[:, None] * channels + c[None, :]
        mu = tl.load(mean + at, mask=here, other=0.0)
        rs = tl.load(rstd + at, mask=here, other=0.0)
        g = tl.load(dz + offset, mask=inside, other=0.0).to(tl.float32)
        value = tl.load(total + offset, mask=inside, other=0.0).to(tl.float32)
        n = tl.where(inside, (value - mu[:, None]) * rs[:, None], 0.0)
        h = g * gamma[None, :]
        first, second = tl.sum(h, 1) / channels, tl.sum(h * n, 1) / channels
        result = (h - first[:, None] - n * second[:, None]) * rs[:, None]
        if ALSO:
            result += tl.load(also + offset, mask=inside, other=0.0).to(tl.float32)
        tl.store(dt + offset, result, mask=inside)
        if COPY:
            tl.store(copy + offset, result, mask=inside)
        if LEARNS:
            of_gamma += g * n
            of_beta += g
    if LEARNS:
        out = partial + program * 2 * channels + c
        tl.store(out, tl.sum(of_gamma, 0), mask=there)
        tl.store(out + channels, tl.sum(of_beta, 0), mask=there)
