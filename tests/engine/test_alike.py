"""What the checks of outputs and gradients compare, and what they allow."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onefold.engine.accelerate import fast_student
from onefold.engine.alike import empty, fill_zeros, finite, gradient, likeness, same_gradients
from onefold.ensemble import Plain


def test_likeness_is_the_cosine_over_all_parameters() -> None:
    one = {"a": torch.tensor([1.0, 2.0]), "b": torch.tensor([3.0])}
    other = {"a": torch.tensor([-1.0, 0.5]), "b": torch.tensor([2.0])}
    assert likeness(one, other) == pytest.approx((-1 + 1 + 6) / math.sqrt(14 * 5.25))
    assert likeness({"a": torch.tensor([1e-30])}, {"a": torch.tensor([1e-30])}) == pytest.approx(1)


def test_zeros_are_like_zeros_alone() -> None:
    zero, one = {"a": torch.zeros(2)}, {"a": torch.ones(2)}
    assert likeness(zero, zero) == 1
    assert likeness(zero, one) == likeness(one, zero) == 0
    assert math.isnan(likeness({"a": torch.full((2,), math.nan)}, one))


def test_same_gradients_says_what_one_parameter_of_many_hides() -> None:
    exact = {"large": torch.arange(100.0), "small": torch.ones(3)}
    net = nn.Linear(1, 1)
    assert same_gradients({name: 1.001 * g for name, g in exact.items()}, exact, net)
    assert not same_gradients(exact | {"small": -exact["small"]}, exact, net)
    assert not same_gradients(exact | {"large": exact["large"].flip(0)}, exact, net)


class Odd(nn.Module):
    """Complex weights, sparse gradients, weights without a gradient and a lazy layer that is never run."""

    def __init__(self) -> None:
        super().__init__()
        self.turned = nn.Parameter(torch.randn(5, dtype=torch.cfloat))
        self.embedding = nn.Embedding(7, 3, sparse=True)
        self.idle, self.lazy = nn.Linear(2, 2), nn.LazyLinear(2)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.embedding(x.long().sum(1) % 7) * (self.turned * x).abs().sum(1, keepdim=True))


def test_gradients_of_every_kind() -> None:
    net, x = Odd(), 3 * torch.rand(4, 5)
    found = gradient(Plain(net), x, "float32")
    assert set(found) == {f"net.{name}" for name in ("turned", "embedding.weight", "idle.weight", "idle.bias")}
    net.zero_grad()
    net(x).square().mean().backward()
    assert net.turned.grad is not None
    assert net.embedding.weight.grad is not None
    torch.testing.assert_close(found["net.turned"], torch.view_as_real(net.turned.grad).flatten())
    torch.testing.assert_close(found["net.embedding.weight"], net.embedding.weight.grad.to_dense().flatten())
    assert not found["net.idle.weight"].any()
    assert finite(found)
    assert same_gradients(found, found, net)


class Roots(nn.Module):
    """Takes the root of a frozen parameter, which begins with zeros: noise there is not a number."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(6, 6), nn.Linear(6, 3)
        self.mask = nn.Parameter(torch.zeros(6), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.head(F.relu(self.body(x)) / (1 + self.mask.sqrt())))


def test_noise_is_taken_back() -> None:
    one, other = Roots(), Roots()
    filled = fill_zeros(one, other)
    assert len(filled) == 2
    assert torch.equal(one.mask, other.mask)
    assert not finite(gradient(Plain(one), torch.rand(4, 6), "float32"))
    empty(filled)
    assert not one.mask.any()
    assert not other.mask.any()
    assert not filled


def test_a_network_that_allows_no_noise_is_rewritten() -> None:
    said: list[str] = []
    student = Plain(Roots())
    fast_student(student, torch.rand(4, 6), "float32", said.append)
    assert not said
    assert student.net._compiled_call_impl is not None
