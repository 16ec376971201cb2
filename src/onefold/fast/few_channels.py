"""3 x 3 convolutions with few channels, which would leave cuDNN's large tiles mostly empty.

Everything is channels-last, including the weights: `[K, 3, 3, C]`. Input and output have the same size.
"""

from __future__ import annotations

import torch
import triton.language as tl
from torch import Tensor

from onefold.fast.conv_kernels import Settings
from onefold.fast.kernels.compiled import jit, wait_for_inputs

CHANNELS = (16, 32)  # above this cuDNN is faster (measured on an H200, dev/LOG.md)
# Output channels supported by the weight gradient, by input channels: at most as many sums as for 32 to 32.
GRADIENT = {16: (16, 32, 64), 32: (16, 32)}
SAME_SIZE = Settings([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
PIXELS = 128
# For the weight gradient: pixels per tile, and programs, one for each SM of an H100 or H200.
SUMMED, PROGRAMS = 64, 132


@jit
def convolve_kernel(
    x,
    w,
    bias,
    y,
    pixels,
    height,
    width,
    C: tl.constexpr,
    K: tl.constexpr,
    TRANSPOSED: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    RELU: tl.constexpr,
    PIXELS: tl.constexpr,
):
    """y `[pixels, K]` from x `[pixels, C]`; TRANSPOSED gives the gradient of the input, with K and C swapped in w."""
    wait_for_inputs()
    p = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    here = p < pixels
    column, row = p % width, (p // width) % height
    c, k = tl.arange(0, C), tl.arange(0, K)
    total = tl.zeros([PIXELS, K], tl.float32)
    for i in tl.static_range(3):
        for j in tl.static_range(3):
            inside = here & (row + i >= 1) & (row + i <= height) & (column + j >= 1) & (column + j <= width)
            at = (p + (i - 1) * width + j - 1).to(tl.int64)
            a = tl.load(x + at[:, None] * C + c[None, :], mask=inside[:, None], other=0.0)
            if TRANSPOSED:
                b = tl.load(w + c[:, None] * (9 * K) + (8 - i * 3 - j) * K + k[None, :])
            else:
                b = tl.load(w + k[None, :] * (9 * C) + (i * 3 + j) * C + c[:, None])
            total = tl.dot(a, b, total)
    if HAS_BIAS:
        total += tl.load(bias + k).to(tl.float32)[None, :]
    if RELU:
        total = tl.maximum(total, 0.0)
    tl.store(y + p.to(tl.int64)[:, None] * K + k[None, :], total.to(y.dtype.element_ty), mask=here[:, None])


@jit
def weight_gradient_kernel(
    x, g, partial, pixels, chunk, height, width, C: tl.constexpr, K: tl.constexpr, PIXELS: tl.constexpr
):
    """partial `[programs, K, 3, 3, C]`: one row i of the kernel, summed over a chunk of pixels."""
    wait_for_inputs()
    program, i = tl.program_id(0), tl.program_id(1)
    c, k = tl.arange(0, C), tl.arange(0, K)
    left = tl.zeros([C, K], tl.float32)
    middle = tl.zeros([C, K], tl.float32)
    right = tl.zeros([C, K], tl.float32)
    end = min(program * chunk + chunk, pixels)
    for start in range(program * chunk, end, PIXELS):
        p = start + tl.arange(0, PIXELS)
        here = p < end
        column, row = p % width, (p // width) % height
        of_y = tl.load(g + p.to(tl.int64)[:, None] * K + k[None, :], mask=here[:, None], other=0.0)
        inside = here & (row + i >= 1) & (row + i <= height)
        at = x + (p + (i - 1) * width).to(tl.int64)[None, :] * C + c[:, None]
        left = tl.dot(tl.load(at - C, mask=(inside & (column > 0))[None, :], other=0.0), of_y, left)
        middle = tl.dot(tl.load(at, mask=inside[None, :], other=0.0), of_y, middle)
        right = tl.dot(tl.load(at + C, mask=(inside & (column < width - 1))[None, :], other=0.0), of_y, right)
    out = partial + program * (9 * C * K) + k[None, :] * (9 * C) + i * (3 * C) + c[:, None]
    tl.store(out, left)
    tl.store(out + C, middle)
    tl.store(out + 2 * C, right)


@jit
def total_kernel(partial, total, programs, size, SIZE: tl.constexpr, ROWS: tl.constexpr):
    """total `[size]`: the sum of partial `[programs, size]`."""
    wait_for_inputs()
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    rows = tl.arange(0, ROWS)
    summed = tl.zeros([ROWS, SIZE], tl.float32)
    for first in range(0, programs, ROWS):
        row = first + rows
        there = (row < programs)[:, None] & (at < size)[None, :]
        summed += tl.load(partial + row[:, None] * size + at[None, :], mask=there, other=0.0)
    tl.store(total + at, tl.sum(summed, 0), mask=at < size)


def suits(x: Tensor, w: Tensor, settings: Settings) -> bool:
    """Whether these kernels can compute the convolution: same size, and few channels in and out."""
    return plain(x, w, settings) and w.shape[0] in CHANNELS and w.shape[1] in CHANNELS


def suits_gradient(x: Tensor, w: Tensor, settings: Settings) -> bool:
    """Whether these kernels can compute the gradient of its weights."""
    return plain(x, w, settings) and w.shape[0] in GRADIENT.get(w.shape[1], ())


def plain(x: Tensor, w: Tensor, settings: Settings) -> bool:
    return x.is_cuda and x.dtype == torch.bfloat16 and w.shape[2:] == (3, 3) and settings == SAME_SIZE


def few_channels(
    x: Tensor, w: Tensor, bias: Tensor | None = None, *, relu: bool = False, transposed: bool = False
) -> Tensor:
    """The convolution, with a ReLU if `relu` is set; with `transposed`, the gradient of its input."""
    (n, c, height, width), k = x.shape, w.shape[1 if transposed else 0]
    y = x.new_empty((n, height, width, k)).permute(0, 3, 1, 2)
    pixels = n * height * width
    flags = {"TRANSPOSED": transposed, "HAS_BIAS": bias is not None, "RELU": relu}
    sizes = {"C": c, "K": k, "PIXELS": PIXELS, "num_warps": 4 if c == 16 else 8}
    convolve_kernel[(-(-pixels // PIXELS),)](x, w, bias, y, pixels, height, width, **flags, **sizes)
    return y


def few_channels_weight_gradient(g: Tensor, x: Tensor) -> Tensor:
    """The gradient of the weights in float32, channels-last."""
    (n, c, height, width), k = x.shape, g.shape[1]
    pixels = n * height * width
    chunk = -(-pixels // (PROGRAMS * SUMMED)) * SUMMED
    programs = -(-pixels // chunk)
    partial = x.new_empty((programs, k, 3, 3, c), dtype=torch.float32)
    weight_gradient_kernel[(programs, 3)](
        x, g, partial, pixels, chunk, height, width, C=c, K=k, PIXELS=SUMMED, num_warps=1 if k < 64 else 2
    )
    total = x.new_empty((k, 3, 3, c), dtype=torch.float32)
    total_kernel[(-(-total.numel() // 32),)](partial, total, programs, total.numel(), SIZE=32, ROWS=64, num_warps=4)
    return total.permute(0, 3, 1, 2)
