"""The reference networks: images in [0, 1] (or features) to logits `[B, K]`, standardisation first."""

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
        """torchvision's networks: it takes seconds to import, and most runs do without."""
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
