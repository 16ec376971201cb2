"""Makes a batch from a data set on the GPU: selects, crops, mirrors and scales images in one kernel."""

from __future__ import annotations

import torch
import triton.language as tl
from torch import Tensor

from onefold.fast.kernels.compiled import jit, wait_for_inputs


@jit
def crop_kernel(
    images,
    chosen,
    top,
    left,
    flip,
    out,
    pad,
    CHANNELS: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """out `[B, H, W, C]`: `crop_and_flip` of the chosen ones among images `[N, C, H, W]`, divided by 255."""
    wait_for_inputs()
    b = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = at < CHANNELS * HEIGHT * WIDTH
    c, w, h = at % CHANNELS, (at // CHANNELS) % WIDTH, at // (CHANNELS * WIDTH)
    mirrored = tl.where(tl.load(flip + b) != 0, WIDTH - 1 - w, w)
    row, column = h + tl.load(top + b) - pad, mirrored + tl.load(left + b) - pad
    inside = there & (row >= 0) & (row < HEIGHT) & (column >= 0) & (column < WIDTH)
    source = images + tl.load(chosen + b) * (CHANNELS * HEIGHT * WIDTH)
    value = tl.load(source + (c * HEIGHT + row) * WIDTH + column, mask=inside, other=0).to(tl.float32)
    tl.store(out + b.to(tl.int64) * (CHANNELS * HEIGHT * WIDTH) + at, tl.math.div_rn(value, 255.0), mask=there)


def cropped(images: Tensor, chosen: Tensor, top: Tensor, left: Tensor, flip: Tensor, pad: int) -> Tensor:
    """The batch `[B, C, H, W]` in channels-last, as floats in [0, 1]."""
    count, (_, channels, height, width) = chosen.shape[0], images.shape
    out = torch.empty((count, channels, height, width), device=images.device, memory_format=torch.channels_last)
    if count:
        crop_kernel[(count, -(-channels * height * width // 1024))](
            images, chosen, top, left, flip, out, pad, CHANNELS=channels, HEIGHT=height, WIDTH=width, BLOCK=1024
        )
    return out
