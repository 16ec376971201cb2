"""Standardisation as a layer, so that all code outside a network works with pixels in [0, 1]."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class ChannelStatistics:
    """Mean and standard deviation of each channel of a data set, for values in [0, 1]."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.mean:
            raise ValueError("mean: expected one value for each channel, got none")
        if len(self.mean) != len(self.std):
            raise ValueError(f"std: expected {len(self.mean)} values, one for each mean, got {len(self.std)}")
        if not all(math.isfinite(value) for value in self.mean):
            raise ValueError(f"mean: expected finite values, got {self.mean}")
        if not all(math.isfinite(value) and value > 0 for value in self.std):
            raise ValueError(f"std: expected finite positive values, got {self.std}")

    @property
    def channels(self) -> int:
        """The number of channels, C."""
        return len(self.mean)


# Over all pixels of the training split. The smaller standard deviations in circulation (0.2023, ... for CIFAR-10,
# 0.2302, ... for TinyImageNet) are averages of the deviation within each image, and ignore that between images.
CIFAR10 = ChannelStatistics(mean=(0.4914, 0.4822, 0.4465), std=(0.2470, 0.2435, 0.2616))
CIFAR100 = ChannelStatistics(mean=(0.5071, 0.4865, 0.4409), std=(0.2673, 0.2564, 0.2762))
TINY_IMAGENET = ChannelStatistics(mean=(0.4802, 0.4481, 0.3975), std=(0.2770, 0.2691, 0.2821))
# Not the exact moments, but the values every published ImageNet checkpoint was trained with.
IMAGENET = ChannelStatistics(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))


class Standardize(nn.Module):
    """(x - mean) / std for each channel of `[B, C, ...]`.

    The statistics are part of the architecture and not learned: they move with the module but are left out of its
    `state_dict`, so that a checkpoint of the bare network loads with `strict=True` into a standardised one.
    """

    mean: Tensor  # [C]
    std: Tensor  # [C]

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.statistics = ChannelStatistics(tuple(mean), tuple(std))
        self.register_buffer("mean", torch.tensor(self.statistics.mean), persistent=False)
        self.register_buffer("std", torch.tensor(self.statistics.std), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if not x.is_floating_point():
            raise ValueError(
                f"x: expected floating-point inputs, got {x.dtype}; "
                "convert images to float and divide by 255, so that they lie in [0, 1]"
            )
        # A single channel would silently broadcast to all C.
        if x.dim() < 2 or x.shape[1] != self.statistics.channels:
            raise ValueError(f"x: expected shape [B, {self.statistics.channels}, ...], got {list(x.shape)}")
        shape = (-1,) + (1,) * (x.dim() - 2)
        return (x - self.mean.view(shape)) / self.std.view(shape)

    def extra_repr(self) -> str:
        return f"mean={self.statistics.mean}, std={self.statistics.std}"
