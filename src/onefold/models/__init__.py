"""The reference networks: images in [0, 1] (or features) to logits `[B, K]`, standardisation first."""

from __future__ import annotations

from onefold.models.mlp import mlp
from onefold.models.resnet import StandardizedResNet, resnet18_small, resnet50
from onefold.models.standardize import (
    CIFAR10,
    CIFAR100,
    IMAGENET,
    TINY_IMAGENET,
    ChannelStatistics,
    Standardize,
)
from onefold.models.wide_resnet import WideResNet, wide_resnet, wrn28

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
