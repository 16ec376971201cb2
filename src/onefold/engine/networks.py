"""The reference networks by the name a recipe gives them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from onefold.models import ChannelStatistics, Standardize, mlp, wide_resnet
from onefold.names import unknown

NAMES = ("wrn28x1", "wrn28x4", "resnet18-small", "resnet50", "mlp")


def build_network(
    name: str,
    classes: int,
    statistics: tuple[Sequence[float], Sequence[float]],
    image_size: Sequence[int] | None = None,
) -> nn.Module:
    """A fresh network: wrnDxK (depth D, width K), resnet18-small, resnet50 or mlp.

    `statistics` are mean and deviation of each channel, or of each feature. An mlp takes images too, if their
    `image_size` (H, W) is given.
    """
    mean, std = statistics
    channels = ChannelStatistics(tuple(mean), tuple(std))
    wide = re.fullmatch(r"wrn(\d+)x(\d+)", name)
    if name != "mlp" and (wide or name in NAMES) and image_size is not None and len(image_size) != 2:
        raise ValueError(
            f"network: '{name}' is for images, and the examples are of shape {list(image_size)}; use 'mlp'"
        )
    if wide is not None:
        return wide_resnet(int(wide[1]), int(wide[2]), classes, channels, channels.channels)
    if name in ("resnet18-small", "resnet50"):
        if channels.channels != 3:
            raise ValueError(
                f"network: '{name}' is for images with 3 channels, and these have {channels.channels}; use 'wrn28x1'"
            )
        from onefold.models import resnet18_small, resnet50  # torchvision's, which is slow to import

        return (resnet50 if name == "resnet50" else resnet18_small)(classes, channels)
    if name == "mlp" and image_size is not None and len(image_size) == 2:
        flat = mlp(channels.channels * image_size[0] * image_size[1], classes)
        return nn.Sequential(Standardize(channels.mean, channels.std), nn.Flatten(), *flat)
    if name == "mlp":
        return mlp(channels.channels, classes, statistics=channels)
    own = "; one of your own goes through onefold.distill in Python" if ":" in name or "." in name else ""
    raise ValueError(f"network: {unknown(name, NAMES)}{own}")


def network_of(about: dict[str, Any]) -> tuple[nn.Module, Tensor]:
    """A fresh network of the architecture that a run folder has recorded, and inputs of the shape it takes."""
    missing = [name for name in ("network", "classes", "statistics", "image_size") if name not in about]
    if missing:
        raise ValueError(
            f"run.json: expected {', '.join(missing)} in it, to build the network; a run of your own network needs "
            "that network"
        )
    with torch.random.fork_rng(devices=[]):  # weights are loaded into it
        net = build_network(about["network"], about["classes"], about["statistics"], about["image_size"])
    size, channels = about["image_size"], len(about["statistics"][0])
    return net, torch.full((2, channels, *size) if len(size) == 2 else (2, *size), 0.5)
