"""The reference networks: map images in [0, 1] (or features) to logits `[B, K]`, with standardisation built in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onefold.models.mlp import mlp
from onefold.models.standardize import (
    CIFAR10,
    CIFAR100,
    IMAGENET,
    TINY_IMAGENET,
    ChannelStatistics,
    Standardize,
)
from onefold.models.wide_resnet import WideResNet, wide_resnet, wrn28

if TYPE_CHECKING:
    from onefold.models.resnet import StandardizedResNet, resnet18_small, resnet50
else:

    def __getattr__(name: str) -> object:
        """Imports the torchvision networks on first use: that takes seconds, and most runs do not need them."""
        if name not in {"StandardizedResNet", "resnet18_small", "resnet50"}:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from onefold.models import resnet

        return getattr(resnet, name)


__all__ = [
    "CIFAR10",
    "CIFAR100",
    "IMAGENET",
    "TINY_IMAGENET",
    "ChannelStatistics",
    "Standardize",
    "StandardizedResNet",
    "WideResNet",
    "mlp",
    "resnet18_small",
    "resnet50",
    "wide_resnet",
    "wrn28",
]
