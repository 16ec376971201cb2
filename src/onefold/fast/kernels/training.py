"""BatchNorm in training: its output, once the moments of the batch are known, and its input gradient."""

from __future__ import annotations

import triton.language as tl

from onefold.fast.kernels.compiled import jit, wait_for_inputs


@jit
def affine_kernel(
    y,
    a,
    b,
    r,
    onto,
    z,
    rows,
    channels,
    chunk,
    RELU: tl.constexpr,
    HAS_R: tl.constexpr,
    ONTO: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """z = relu(a y + b (+ onto)) (1 + r), with a, r `[M, C]` and b `[C]`."""
    wait_for_inputs()
    member, split, block = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    c = block * CHANNELS + tl.arange(0, CHANNELS)
    there = c < channels
    scale = tl.load(a + member * channels + c, mask=there, other=0.0)
    shift = tl.load(b + c, mask=there, other=0.0)
    factor = 1.0 + tl.load(r + member * channels + c, mask=there, other=0.0) if HAS_R else scale
    base = member.to(tl.int64) * rows * channels
    start, end = split * chunk, min(split * chunk + chunk, rows)
    for row in range(start, end, ROWS):
        at = row + tl.arange(0, ROWS)
        here = (at < end)[:, None] & there[None, :]
        offset = base + at.to(tl.int64)[:, None] * channels + c[None, :]
        value = tl.load(y + offset, mask=here, other=0.0).to(tl.float32) * scale[None, :] + shift[None, :]
        if ONTO:
            value += tl.load(onto + offset, mask=here, other=0.0).to(tl.float32)
        if RELU:
            value = tl.maximum(value, 0.0)
        if HAS_R:
            value = value * factor[None, :]
        tl.store(z + offset, value, mask=here)


@jit
def gradient_kernel(
    dz,
    y,
    a,
    b,
    c1,
    c2,
    c3,
    also,
    dy,
    rows,
    channels,
    chunk,
    RELU: tl.constexpr,
    ALSO: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """dy = c1 g + c2 y + c3 (+ also), with c1, c2, c3 `[M, C]` and g = dz where the activation lets it through."""
    wait_for_inputs()
    member, split, block = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    c = block * CHANNELS + tl.arange(0, CHANNELS)
    there = c < channels
    scale = tl.load(a + member * channels + c, mask=there, other=0.0)
    shift = tl.load(b + c, mask=there, other=0.0)
    of_g = tl.load(c1 + member * channels + c, mask=there, other=0.0)
    of_y = tl.load(c2 + member * channels + c, mask=there, other=0.0)
    constant = tl.load(c3 + member * channels + c, mask=there, other=0.0)
    base = member.to(tl.int64) * rows * channels
    start, end = split * chunk, min(split * chunk + chunk, rows)
    for row in range(start, end, ROWS):
        at = row + tl.arange(0, ROWS)
        here = (at < end)[:, None] & there[None, :]
        offset = base + at.to(tl.int64)[:, None] * channels + c[None, :]
        g = tl.load(dz + offset, mask=here, other=0.0).to(tl.float32)
        value = tl.load(y + offset, mask=here, other=0.0).to(tl.float32)
        if RELU:
            g = tl.where(value * scale[None, :] + shift[None, :] > 0, g, 0.0)
        result = g * of_g[None, :] + value * of_y[None, :] + constant[None, :]
        if ALSO:
            result += tl.load(also + offset, mask=here, other=0.0).to(tl.float32)
        tl.store(dy + offset, result, mask=here)
