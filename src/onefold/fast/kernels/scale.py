"""Members' factors on activations, alone or followed by a sum."""

from __future__ import annotations

import triton.language as tl

from onefold.fast.kernels.compiled import jit, wait_for_inputs


@jit
def scaled_sum_kernel(
    y, s, x, z, rows, channels, chunk, HAS_X: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr
):
    """z = (1 + s) y + x."""
    wait_for_inputs()
    member, split, block = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    c = block * CHANNELS + tl.arange(0, CHANNELS)
    there = c < channels
    factor = 1.0 + tl.load(s + member * channels + c, mask=there, other=0.0)
    base = member.to(tl.int64) * rows * channels
    start, end = split * chunk, min(split * chunk + chunk, rows)
    for row in range(start, end, ROWS):
        at = row + tl.arange(0, ROWS)
        here = (at < end)[:, None] & there[None, :]
        offset = base + at.to(tl.int64)[:, None] * channels + c[None, :]
        value = tl.load(y + offset, mask=here, other=0.0).to(tl.float32) * factor[None, :]
        if HAS_X:
            value += tl.load(x + offset, mask=here, other=0.0).to(tl.float32)
        tl.store(z + offset, value, mask=here)


@jit
def scaled_gradient_kernel(
    g,
    y,
    s,
    dy,
    partial,
    rows,
    channels,
    chunk,
    SUMS: tl.constexpr,
    STAGES: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """dy = (1 + s) g; and in the same pass partial `[M, splits, C]`: sums of g y over chunks, whose total is ds."""
    wait_for_inputs()
    member, split, block = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    splits = tl.num_programs(1)
    c = block * CHANNELS + tl.arange(0, CHANNELS)
    there = c < channels
    factor = 1.0 + tl.load(s + member * channels + c, mask=there, other=0.0)
    base = member.to(tl.int64) * rows * channels
    total = tl.zeros([ROWS, CHANNELS], tl.float32)
    start, end = split * chunk, min(split * chunk + chunk, rows)
    for row in tl.range(start, end, ROWS, num_stages=STAGES):
        at = row + tl.arange(0, ROWS)
        here = (at < end)[:, None] & there[None, :]
        offset = base + at.to(tl.int64)[:, None] * channels + c[None, :]
        of_z = tl.load(g + offset, mask=here, other=0.0).to(tl.float32)
        tl.store(dy + offset, of_z * factor[None, :], mask=here)
        if SUMS:
            total += of_z * tl.load(y + offset, mask=here, other=0.0).to(tl.float32)
    if SUMS:
        tl.store(partial + (member * splits + split) * channels + c, tl.sum(total, 0), mask=there)
