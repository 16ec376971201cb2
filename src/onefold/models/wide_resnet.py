"""WideResNet: pre-activation residual blocks, few layers and many channels."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from onefold.models.arguments import check_channels, check_count
from onefold.models.standardize import CIFAR10, ChannelStatistics, Standardize


def wide_resnet(
    depth: int = 28,
    width: int = 1,
    classes: int = 10,
    statistics: ChannelStatistics = CIFAR10,
    channels: int = 3,
) -> WideResNet:
    """The WideResNet of `depth` layers and `width` k (Zagoruyko and Komodakis, 2016), for images in [0, 1].

    A 3x3 convolution to 16 channels; three stages of (depth - 4) / 6 blocks with 16k, 32k and 64k channels, the last
    two each at half the previous resolution; BatchNorm and ReLU; global average pooling; and a linear head. Because of
    the pooling, the same network takes 32x32 as well as 64x64 images.
    """
    check_count("depth", depth, least=10)
    if (depth - 4) % 6 != 0:
        raise ValueError(f"depth: expected 6n + 4 (10, 16, 22, 28, ...), got {depth!r}")
    check_count("width", width, least=1)
    check_count("classes", classes, least=2)
    check_count("channels", channels, least=1)
    check_channels(statistics, channels)
    return WideResNet((depth - 4) // 6, width, classes, statistics)


def wrn28(width: int, classes: int = 10, statistics: ChannelStatistics = CIFAR10, channels: int = 3) -> WideResNet:
    """WRN28xk, the paper's network for CIFAR (k = 1 and 4) and TinyImageNet (k = 4)."""
    return wide_resnet(28, width, classes, statistics, channels)


class WideResNet(nn.Module):
    """Maps images `[B, C, H, W]` in [0, 1] to logits `[B, K]`; `wide_resnet` checks the arguments."""

    def __init__(self, blocks: int, width: int, classes: int, statistics: ChannelStatistics) -> None:
        super().__init__()
        self.standardize = Standardize(statistics.mean, statistics.std)
        self.conv = conv3x3(statistics.channels, 16)
        self.stage1 = stage(blocks, 16, 16 * width, stride=1)
        self.stage2 = stage(blocks, 16 * width, 32 * width, stride=2)
        self.stage3 = stage(blocks, 32 * width, 64 * width, stride=2)
        self.norm = nn.BatchNorm2d(64 * width)
        self.head = nn.Linear(64 * width, classes)
        for module in self.modules():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
        nn.init.zeros_(self.head.bias)

    def forward(self, x: Tensor) -> Tensor:
        h = self.conv(self.standardize(x))
        h = self.stage3(self.stage2(self.stage1(h)))
        h = F.relu(self.norm(h)).mean(dim=(2, 3))  # [B, 64k]
        logits: Tensor = self.head(h)
        return logits


class Block(nn.Module):
    """x + conv(relu(norm(conv(relu(norm(x)))))), with a 1x1 projection of x if the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inputs)
        self.conv1 = conv3x3(inputs, outputs, stride)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.conv2 = conv3x3(outputs, outputs)
        self.shortcut: nn.Conv2d | None = None
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Conv2d(inputs, outputs, kernel_size=1, stride=stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        # The projection is applied to x itself, as in the distillation paper's networks; in the original WideResNet it
        # is applied to the activated input.
        h = F.relu(self.norm1(x))  # before the projection: the rewritten network then sums both gradients of x at once
        skip: Tensor = x if self.shortcut is None else self.shortcut(x)
        residual: Tensor = self.conv2(F.relu(self.norm2(self.conv1(h))))
        return skip + residual


def stage(blocks: int, inputs: int, outputs: int, stride: int) -> nn.Sequential:
    """Blocks at one resolution; the first changes the shape."""
    return nn.Sequential(
        Block(inputs, outputs, stride), *(Block(outputs, outputs, stride=1) for _ in range(blocks - 1))
    )


def conv3x3(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    # Without bias: the BatchNorm that follows would cancel it.
    return nn.Conv2d(inputs, outputs, kernel_size=3, stride=stride, padding=1, bias=False)
