"""A checkpoint of an optimizer goes back into one that keeps its rates in tensors and its weights in another layout."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.optim import SGD

from onefold.engine.keeping.pack import pack, unpack
from onefold.engine.optim.factories import load_optimizer


def convolution() -> nn.Conv2d:
    torch.manual_seed(0)
    conv = nn.Conv2d(3, 5, 3)
    conv.weight.data = conv.weight.data.contiguous(memory_format=torch.channels_last)
    return conv


def step(conv: nn.Conv2d, optimizer: SGD, seed: int) -> None:
    optimizer.zero_grad()
    x = torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(seed))
    conv(x).square().sum().backward()
    optimizer.step()


@pytest.mark.parametrize("as_tensor", [True, False])
def test_going_on_is_the_same_as_never_having_stopped(as_tensor: bool) -> None:
    def made(conv: nn.Conv2d) -> SGD:
        lr = torch.tensor(0.01) if as_tensor else 0.01
        return SGD(conv.parameters(), lr=lr, momentum=0.9, nesterov=True, foreach=False)

    straight = convolution()
    optimizer = made(straight)
    step(straight, optimizer, 1)
    stored = unpack(*pack({"optimizer": optimizer.state_dict()}))["optimizer"]
    resumed = copy.deepcopy(straight)
    other = made(resumed)
    rate = other.param_groups[0]["lr"]
    load_optimizer(other, stored)
    momentum = other.state[resumed.weight]["momentum_buffer"]
    assert momentum.stride() == resumed.weight.stride()
    assert torch.equal(momentum, optimizer.state[straight.weight]["momentum_buffer"])
    assert (other.param_groups[0]["lr"] is rate) or not as_tensor
    assert other.param_groups[0]["foreach"] is False
    for seed in (2, 3):
        step(straight, optimizer, seed)
        step(resumed, other, seed)
    assert torch.equal(straight.weight, resumed.weight)


def test_a_rate_of_another_kind_keeps_its_value() -> None:
    conv = convolution()
    with_tensor = SGD(conv.parameters(), lr=torch.tensor(0.25), foreach=False)
    with_number = SGD(conv.parameters(), lr=0.5, foreach=False)
    state = with_number.state_dict()
    load_optimizer(with_number, with_tensor.state_dict())
    assert with_number.param_groups[0]["lr"] == 0.25
    load_optimizer(with_tensor, state)
    assert float(with_tensor.param_groups[0]["lr"]) == 0.5
