"""BatchNorm in evaluation mode, from its running statistics."""

from __future__ import annotations

import triton.language as tl

from onefold.fast.kernels.compiled import jit, wait_for_inputs


@jit
def at_rest(s, weight, bias, mean, var, eps, member, channels, c, there, HAS_S: tl.constexpr, AFFINE: tl.constexpr):
    """a and b of a member, from the running statistics."""
    rstd = 1.0 / tl.sqrt(tl.load(var + c, mask=there, other=1.0) + eps)
    gamma = rstd * tl.load(weight + c, mask=there, other=0.0) if AFFINE else rstd
    beta = tl.load(bias + c, mask=there, other=0.0) if AFFINE else 0.0
    shift = beta - tl.load(mean + c, mask=there, other=0.0) * gamma
    scale = gamma * (1.0 + tl.load(s + member * channels + c, mask=there, other=0.0)) if HAS_S else gamma
    return scale, shift


@jit
def rest_kernel(
    y,
    q,
    x,
    total,
    s,
    weight,
    bias,
    mean,
    var,
    r,
    onto,
    z,
    rows,
    channels,
    chunk,
    eps,
    SUM: tl.constexpr,
    HAS_Q: tl.constexpr,
    HAS_S: tl.constexpr,
    AFFINE: tl.constexpr,
    RELU: tl.constexpr,
    HAS_R: tl.constexpr,
    ONTO: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """z = relu(a y + b (+ onto)) (1 + r), with a and b from the running statistics.

    If SUM is set, total = (1 + q) y + x takes the place of y, and is stored as well.
    """
    wait_for_inputs()
    member, split, block = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    c = block * CHANNELS + tl.arange(0, CHANNELS)
    there = c < channels
    scale, shift = at_rest(s, weight, bias, mean, var, eps, member, channels, c, there, HAS_S, AFFINE)
    factor = 1.0 + tl.load(r + member * channels + c, mask=there, other=0.0) if HAS_R else scale
    before = 1.0 + tl.load(q + member * channels + c, mask=there, other=0.0) if HAS_Q else scale
    base = member.to(tl.int64) * rows * channels
    start, end = split * chunk, min(split * chunk + chunk, rows)
    for row in range(start, end, ROWS):
        at = row + tl.arange(0, ROWS)
        here = (at < end)[:, None] & there[None, :]
        offset = base + at.to(tl.int64)[:, None] * channels + c[None, :]
        value = tl.load(y + offset, mask=here, other=0.0).to(tl.float32)
        if SUM:
            if HAS_Q:
                value = value * before[None, :]
            value += tl.load(x + offset, mask=here, other=0.0).to(tl.float32)
            kept = value.to(total.dtype.element_ty)
            tl.store(total + offset, kept, mask=here)
            value = kept.to(tl.float32)
        value = value * scale[None, :] + shift[None, :]
        if ONTO:
            value += tl.load(onto + offset, mask=here, other=0.0).to(tl.float32)
        if RELU:
            value = tl.maximum(value, 0.0)
        if HAS_R:
            value = value * factor[None, :]
        tl.store(z + offset, value, mask=here)


@jit
def rest_gradient_kernel(
    dz,
    y,
    s,
    weight,
    bias,
    mean,
    var,
    r,
    also,
    z,
    passed,
    dy,
    rows,
    channels,
    chunk,
    eps,
    HAS_S: tl.constexpr,
    AFFINE: tl.constexpr,
    RELU: tl.constexpr,
    HAS_R: tl.constexpr,
    ALSO: tl.constexpr,
    GATED: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """dy = a (1 + r) g (+ also), where g is dz where the activation lets it through, else zero. If GATED is set,
    z != 0 shows where it does, and g is stored in passed."""
    wait_for_inputs()
    member, split, block = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    c = block * CHANNELS + tl.arange(0, CHANNELS)
    there = c < channels
    scale, shift = at_rest(s, weight, bias, mean, var, eps, member, channels, c, there, HAS_S, AFFINE)
    of_g = scale * (1.0 + tl.load(r + member * channels + c, mask=there, other=0.0)) if HAS_R else scale
    base = member.to(tl.int64) * rows * channels
    start, end = split * chunk, min(split * chunk + chunk, rows)
    for row in range(start, end, ROWS):
        at = row + tl.arange(0, ROWS)
        here = (at < end)[:, None] & there[None, :]
        offset = base + at.to(tl.int64)[:, None] * channels + c[None, :]
        g = tl.load(dz + offset, mask=here, other=0.0).to(tl.float32)
        if GATED:
            g = tl.where(tl.load(z + offset, mask=here, other=0.0).to(tl.float32) != 0, g, 0.0)
            tl.store(passed + offset, g, mask=here)
        elif RELU:
            value = tl.load(y + offset, mask=here, other=0.0).to(tl.float32)
            g = tl.where(value * scale[None, :] + shift[None, :] > 0, g, 0.0)
        result = g * of_g[None, :]
        if ALSO:
            result += tl.load(also + offset, mask=here, other=0.0).to(tl.float32)
        tl.store(dy + offset, result, mask=here)
