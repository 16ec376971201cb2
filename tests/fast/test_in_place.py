"""What happens in place stays where it happens: nothing is put together across it."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onefold.fast.members import scaled
from onefold.fast.network import make_fast

Forward = Callable[["Net", Tensor], Tensor]


def sum_into_a_view(net: Net, x: Tensor) -> Tensor:
    h = net.mix(x)
    view = h.view(h.shape)
    view += x
    return torch.as_tensor(net.norm(view) + h)


def sum_into_what_has_a_view(net: Net, x: Tensor) -> Tensor:
    h = net.mix(x)
    view = h.view(h.shape)
    h += x
    return torch.as_tensor(net.norm(h) + view)


def change_of_a_part_after_a_sum(net: Net, x: Tensor) -> Tensor:
    h = net.mix(x)
    total = h + x
    h.add_(torch.arange(6.0, dtype=x.dtype).reshape(net.along))
    return torch.as_tensor(net.norm(total) + h)


def activation_of_a_part_after_a_sum(net: Net, x: Tensor) -> Tensor:
    h = net.mix(x)
    total = h + x
    h = F.elu(h, 1.0, True)
    return torch.as_tensor(net.norm(total) + h)


def change_by_index_after_a_sum(net: Net, x: Tensor) -> Tensor:
    h = net.mix(x)
    total = h + x
    h[0] = 3.0
    return torch.as_tensor(net.norm(total) + h)


def change_between_norm_and_activation(net: Net, x: Tensor) -> Tensor:
    h = x.sin()
    with torch.no_grad():
        z = net.norm(h)
        h += 1
        return F.relu(z) + h


def change_between_sum_and_activation(net: Net, x: Tensor) -> Tensor:
    h, other = net.mix(x), x.sin()
    with torch.no_grad():
        total = net.norm(h) + other
        other *= 2
        return F.relu(total) + other


def sum_into_a_view_after_a_norm(net: Net, x: Tensor) -> Tensor:
    other = x.sin()
    view = other.view(x.shape)
    view += net.norm(net.mix(x))
    return F.relu(view) + other


def change_between_factor_and_norm(net: Net, x: Tensor) -> Tensor:
    h = x.sin()
    with torch.no_grad():
        y = scaled(h, net.s)
        h *= 2
        return torch.as_tensor(net.norm(y) + h)


def change_between_factor_and_sum(net: Net, x: Tensor) -> Tensor:
    h = scaled(x, net.s).sin()  # whose size is written as that of what follows
    with torch.no_grad():
        y = scaled(h, net.s)
        h *= 2
        return y + h


def change_between_convolution_and_activation(net: Net, x: Tensor) -> Tensor:
    h = x.sin()
    with torch.no_grad():
        y = net.mix(h)
        h *= 2
        return F.relu(y) + h


FORWARDS: list[Forward] = [
    sum_into_a_view,
    sum_into_what_has_a_view,
    change_of_a_part_after_a_sum,
    activation_of_a_part_after_a_sum,
    change_by_index_after_a_sum,
    change_between_norm_and_activation,
    change_between_sum_and_activation,
    sum_into_a_view_after_a_norm,
    change_between_factor_and_norm,
    change_between_factor_and_sum,
    change_between_convolution_and_activation,
]


class Net(nn.Module):
    def __init__(self, images: bool, forward: Forward) -> None:
        super().__init__()
        self.mix: nn.Module = nn.Conv2d(6, 6, 1) if images else nn.Linear(6, 6)
        self.norm: nn.Module = nn.BatchNorm2d(6) if images else nn.LayerNorm(6)
        self.along = (6, 1, 1) if images else (6,)
        self.s = nn.Parameter(torch.rand(2, 6))
        self.run = forward

    def forward(self, x: Tensor) -> Tensor:
        return self.run(self, x)


@pytest.mark.parametrize("images", [True, False])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("forward", FORWARDS)
def test_values_and_gradients_are_those_of_the_layers(forward: Forward, training: bool, images: bool) -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()
    net = Net(images, forward).double().train(training)
    quick = copy.deepcopy(net)
    make_fast(quick)
    x = torch.randn(4, 6, 6, 6, dtype=torch.float64)
    expected, found = net(x.clone()), quick(x.clone())
    torch.testing.assert_close(found, expected)
    if expected.requires_grad:
        g = torch.randn_like(expected)
        theirs = torch.autograd.grad(expected, list(net.mix.parameters()), g)
        for mine, other in zip(torch.autograd.grad(found, list(quick.mix.parameters()), g), theirs, strict=True):
            torch.testing.assert_close(mine, other)
