"""torchvision's residual networks with standardisation as the first layer."""

from __future__ import annotations

from torch import Tensor, nn
from torchvision.models.resnet import BasicBlock, Bottleneck, ResNet

from onefold.models.arguments import check_channels, check_count
from onefold.models.standardize import IMAGENET, TINY_IMAGENET, ChannelStatistics, Standardize


def resnet18_small(classes: int = 200, statistics: ChannelStatistics = TINY_IMAGENET) -> StandardizedResNet:
    """ResNet-18 with a stem for small images: a 3x3 convolution of stride 1 and no max pooling."""
    net = StandardizedResNet(BasicBlock, [2, 2, 2, 2], classes, statistics)
    net.conv1 = nn.Conv2d(3, 64, kernel_size=3, stride=1, padding=1, bias=False)
    nn.init.kaiming_normal_(net.conv1.weight, mode="fan_out", nonlinearity="relu")
    net.add_module("maxpool", nn.Identity())
    return net


def resnet50(classes: int = 1000, statistics: ChannelStatistics = IMAGENET) -> StandardizedResNet:
    """ResNet-50 with randomly initialized weights; torchvision's `state_dict` loads with `strict=True`."""
    return StandardizedResNet(Bottleneck, [3, 4, 6, 3], classes, statistics)


class StandardizedResNet(ResNet):
    """torchvision's ResNet for images in [0, 1], with standardisation as first layer and the same `state_dict` keys."""

    def __init__(
        self,
        block: type[BasicBlock | Bottleneck],
        layers: list[int],
        classes: int,
        statistics: ChannelStatistics,
    ) -> None:
        check_count("classes", classes, least=2)
        check_channels(statistics, channels=3)
        super().__init__(block, layers, num_classes=classes)
        # Re-registered after the standardisation layer, so that children are listed in the order they run.
        layers_of_torchvision = dict(self.named_children())
        for name in layers_of_torchvision:
            delattr(self, name)
        self.standardize = Standardize(statistics.mean, statistics.std)
        for name, layer in layers_of_torchvision.items():
            self.add_module(name, layer)

    def forward(self, x: Tensor) -> Tensor:
        return self._forward_impl(self.standardize(x))
