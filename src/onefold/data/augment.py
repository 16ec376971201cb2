"""Random crops and flips of a whole batch at once, on the batch's device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class CropFlip:
    """A random crop of the image after padding it with `pad` rows and columns of zeros, and a random horizontal flip.

    The paper's augmentation for CIFAR and TinyImageNet (pad 4). Digits must not be flipped.
    """

    pad: int = 4
    flip: bool = True

    def __post_init__(self) -> None:
        if self.pad < 0:
            raise ValueError(f"pad: expected at least 0, got {self.pad}")


@dataclass(frozen=True)
class ResizedCrop:
    """A random part of the image scaled to `size` x `size`, and a random horizontal flip: ImageNet's augmentation.

    For evaluation, the shorter side is scaled to 256/224 of `size` and the centre is cropped.
    """

    size: int = 224
    flip: bool = True

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"size: expected at least 1, got {self.size}")

    @property
    def shorter_side(self) -> int:
        """The length to which the shorter side is scaled for evaluation."""
        return round(self.size * 256 / 224)


Augmentation = CropFlip | ResizedCrop


class Draws(NamedTuple):
    """Where to crop and whether to flip, for N images."""

    top: Tensor  # [N], 0 to 2 * pad
    left: Tensor  # [N], 0 to 2 * pad
    flip: Tensor  # [N], bool

    def part(self, first: int, last: int) -> Draws:
        return Draws(self.top[first:last], self.left[first:last], self.flip[first:last])

    def to(self, device: torch.device) -> Draws:
        return Draws(self.top.to(device), self.left.to(device), self.flip.to(device))


def draw(count: int, augmentation: CropFlip, generator: torch.Generator) -> Draws:
    """Random draws for `count` images, on the generator's device."""
    places = torch.randint(0, 2 * augmentation.pad + 1, (2, count), generator=generator, device=generator.device)
    coins = torch.randint(0, 2, (count,), generator=generator, device=generator.device)
    return Draws(places[0], places[1], (coins == 1) & augmentation.flip)


def crop_and_flip(images: Tensor, draws: Draws, pad: int) -> Tensor:
    """Image b of `[B, C, H, W]`, padded with zeros, cropped to its size at (top_b, left_b), then mirrored if flip_b."""
    height, width = images.shape[-2:]
    padded = F.pad(images, (pad, pad, pad, pad))
    # A view of all possible crops: [B, C, 2 pad + 1, 2 pad + 1, H, W]. Indexing copies only one per image.
    crops = padded.unfold(2, height, 1).unfold(3, width, 1)
    picked = crops[torch.arange(len(images), device=images.device), :, draws.top, draws.left]
    return torch.where(draws.flip[:, None, None, None], picked.flip(-1), picked)


def as_input(x: Tensor) -> Tensor:
    """Converts to a network's input: uint8 pixels become floats in [0, 1], floats stay as they are."""
    return x.float().div_(255) if x.dtype == torch.uint8 else x
