"""Corruptions from storing images: fewer pixels, JPEG."""

from __future__ import annotations

import io
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from onefold.data.corrupt.draws import Draws
from onefold.data.corrupt.linear import box_matrix


def pixelate(x: Tensor, draws: Draws, factor: float) -> Tensor:  # noqa: ARG001
    """Scales the sides by `factor` and back up, bit for bit as Pillow's box filter does."""
    height, width = x.shape[-2:]
    low, narrow = max(int(height * factor), 1), max(int(width * factor), 1)
    pixels = x.double()
    for target in ((low, narrow), (height, width)):
        pixels = boxed(boxed(pixels, target[1]).mT, target[0]).mT  # horizontally first
    return pixels.to(torch.uint8)


def boxed(pixels: Tensor, target: int) -> Tensor:
    """Resizes the last axis to `target` and rounds to integers; sums of up to 2^32 are exact in float64."""
    sums = pixels @ box_matrix(pixels.shape[-1], target).to(pixels.device).mT
    return ((sums + 2**21) / 2**22).floor_().clamp_(0, 255)


def jpeg_compression(x: Tensor, draws: Draws, quality: float) -> Tensor:  # noqa: ARG001
    """Encodes and decodes with Pillow, on the CPU, in as many threads as there are cores."""
    from PIL import Image  # imported only where it is used

    images = x.permute(0, 2, 3, 1).cpu().numpy()

    def coded(
        image: np.ndarray[tuple[int, ...], np.dtype[np.uint8]],
    ) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
        with io.BytesIO() as file:
            Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image).save(file, "JPEG", quality=int(quality))
            with Image.open(file) as decoded:
                return np.asarray(decoded).reshape(image.shape)

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        done = list(threads.map(coded, images))
    return torch.from_numpy(np.stack(done)).permute(0, 3, 1, 2).contiguous().to(x.device)
