from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torchvision
from torch import Tensor, nn

from onefold.models import (
    IMAGENET,
    TINY_IMAGENET,
    ChannelStatistics,
    Standardize,
    StandardizedResNet,
    resnet18_small,
    resnet50,
)


def count(net: nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


def test_parameter_counts() -> None:
    with torch.device("meta"):
        assert count(resnet18_small(200)) == 11_271_432
        assert count(resnet50(1000)) == 25_557_032
        theirs = count(torchvision.models.resnet18(weights=None, num_classes=200))
        # The stem's 7x7 kernel became a 3x3 one; nothing else with parameters changed.
        assert count(resnet18_small(200)) == theirs - (49 - 9) * 3 * 64


def test_resnet50_is_torchvisions_behind_the_standardisation() -> None:
    torch.manual_seed(0)
    theirs = torchvision.models.resnet50(weights=None, num_classes=12).eval()
    ours = resnet50(12).eval()
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict(theirs.state_dict(), strict=True)
    x = torch.rand(1, 3, 64, 64)
    mean, std = (torch.tensor(v)[:, None, None] for v in (IMAGENET.mean, IMAGENET.std))
    torch.testing.assert_close(ours(x), theirs((x - mean) / std))


def test_resnet18_small_is_torchvisions_but_for_the_stem() -> None:
    torch.manual_seed(0)
    theirs = torchvision.models.resnet18(weights=None, num_classes=9).eval()
    ours = resnet18_small(9).eval()
    rest = {name: value for name, value in theirs.state_dict().items() if name != "conv1.weight"}
    missing, unexpected = ours.load_state_dict(rest, strict=False)
    assert missing == ["conv1.weight"]
    assert not unexpected
    x = torch.rand(2, 3, 32, 32)
    mean, std = (torch.tensor(v)[:, None, None] for v in (TINY_IMAGENET.mean, TINY_IMAGENET.std))
    h: Tensor = nn.functional.conv2d((x - mean) / std, ours.conv1.weight, padding=1)
    h = theirs.bn1(h).clamp(min=0)
    assert h.shape == (2, 64, 32, 32)  # the stem keeps the resolution
    for layer in (theirs.layer1, theirs.layer2, theirs.layer3, theirs.layer4):
        h = layer(h)
    torch.testing.assert_close(ours(x), theirs.fc(h.mean(dim=(2, 3))))


@pytest.mark.parametrize("size", [32, 64])
def test_resnet18_small_takes_both_sizes(size: int) -> None:
    net = resnet18_small(200).eval()
    with torch.no_grad():
        assert net(torch.rand(1, 3, size, size)).shape == (1, 200)


@pytest.mark.parametrize("build", [resnet18_small, resnet50])
def test_the_first_layer_standardises(build: Callable[..., StandardizedResNet]) -> None:
    statistics = ChannelStatistics((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    with torch.device("meta"):
        net = build(10, statistics)
    names = [name for name, _ in net.named_children()]
    assert names[:2] == ["standardize", "conv1"]
    assert isinstance(net.standardize, Standardize)
    assert net.standardize.statistics == statistics


def test_gradients_reach_the_input_and_every_parameter() -> None:
    torch.manual_seed(0)
    net = resnet18_small(5)
    x = torch.rand(2, 3, 16, 16, requires_grad=True)
    net(x).square().sum().backward()
    assert x.grad is not None
    assert bool((x.grad.flatten(1).norm(dim=1) > 0).all())
    assert all(p.grad is not None and float(p.grad.norm()) > 0 for p in net.parameters())


def test_a_seed_decides_the_weights() -> None:
    def stem(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return resnet18_small(10).conv1.weight.detach()

    assert torch.equal(stem(3), stem(3))
    assert not torch.equal(stem(3), stem(4))
    # Kaiming, counted over the 64 outputs of 3x3 each.
    assert float(stem(3).std()) == pytest.approx((2 / (64 * 9)) ** 0.5, rel=0.1)


@pytest.mark.parametrize("build", [resnet18_small, resnet50])
def test_bad_arguments_are_named(build: Callable[..., StandardizedResNet]) -> None:
    with pytest.raises(ValueError, match="classes"):
        build(1)
    with pytest.raises(ValueError, match="statistics: expected those of 3 channels, got 1"):
        build(10, ChannelStatistics((0.5,), (0.5,)))
