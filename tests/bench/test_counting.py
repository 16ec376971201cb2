"""Arithmetic by counting, against closed forms."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from onefold.engine.cost.counting import count_forward
from onefold.models import resnet18_small, resnet50, wrn28


def wrn28_products(width: int, classes: int) -> int:
    """Multiplications of WRN28xk for one 32 x 32 image, from its definition."""
    channels = [16, 16 * width, 32 * width, 64 * width]
    total = 9 * 3 * 16 * 32**2
    for number, side in ((1, 32), (2, 16), (3, 8)):
        before, after = channels[number - 1], channels[number]
        total += 9 * before * after * side**2 + 9 * after**2 * side**2  # the first block
        total += before * after * side**2 if before != after or number > 1 else 0  # its projection
        total += 3 * 2 * 9 * after**2 * side**2
    return total + 64 * width * classes


@pytest.mark.parametrize(("width", "classes"), [(1, 10), (4, 100)])
def test_wide_resnet(width: int, classes: int) -> None:
    forward = count_forward(wrn28(width, classes), (3, 3, 32, 32))
    assert forward.flops == 2 * 3 * wrn28_products(width, classes)


def by_hooks(net: nn.Module, x: Tensor) -> tuple[int, int]:
    """Operations and outputs of convolutions and linear layers, from what passes through them."""
    flops, written = [], []

    def convolution(module: nn.Conv2d, _: object, out: Tensor) -> None:
        each = module.in_channels // module.groups * module.kernel_size[0] * module.kernel_size[1]
        flops.append(2 * out.numel() * each)
        written.append(out.numel())

    def linear(module: nn.Linear, _: object, out: Tensor) -> None:
        flops.append(2 * out.numel() * module.in_features)
        written.append(out.numel())

    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(convolution)
        elif isinstance(module, nn.Linear):
            module.register_forward_hook(linear)
    with torch.no_grad():
        net.eval()(x)
    return sum(flops), sum(written)


def test_resnets() -> None:
    for net, side in ((resnet50(1000), 64), (resnet18_small(200), 32)):
        forward = count_forward(net, (2, 3, side, side))
        assert (forward.flops, forward.activations) == by_hooks(net, torch.zeros(2, 3, side, side))
    assert count_forward(resnet50(1000), (1, 3, 224, 224)).flops == 2 * 4_089_184_256


def test_numbers_that_are_moved() -> None:
    (op,) = count_forward(nn.Linear(5, 3), (7, 5)).operations
    assert (op.flops, op.read, op.written) == (2 * 7 * 5 * 3, 7 * 5 + 5 * 3 + 3, 7 * 3)
    grouped = nn.Conv2d(4, 6, 3, groups=2, padding=1, bias=False)
    (op,) = count_forward(grouped, (2, 4, 8, 8)).operations
    assert (op.flops, op.read, op.written) == (2 * 2 * 6 * 64 * 2 * 9, 2 * 4 * 64 + 6 * 2 * 9, 2 * 6 * 64)


def test_attention_is_counted_in_training_and_at_rest() -> None:
    layer = nn.TransformerEncoderLayer(16, 2, dim_feedforward=32, batch_first=True)
    tokens, width = 5, 16
    products = 4 * tokens * width * width + 2 * tokens * tokens * width + 2 * tokens * width * 32
    for training in (True, False):
        assert count_forward(layer.train(training), (3, tokens, width)).flops == 2 * 3 * products
        assert layer.training is training
    assert torch.backends.mha.get_fastpath_enabled()


def test_nothing_is_left_behind() -> None:
    net = wrn28(1).train()
    net.norm.eval()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    count_forward(net, (2, 3, 32, 32))
    torch.testing.assert_close(dict(net.state_dict()), before, rtol=0, atol=0)
    assert net.training
    assert net.conv.training
    assert not net.norm.training
    assert all(type(p) is nn.Parameter for p in net.parameters())


class Looks(nn.Module):
    """Takes one way or the other, by a value."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        h: Tensor = self.layer(x)
        return self.layer(x + 1) if float(x.sum()) > 0 else h


def test_a_network_that_looks_at_values_is_asked_in_earnest() -> None:
    assert count_forward(Looks(), (3, 4)).flops == 2 * (2 * 3 * 4 * 2)
