"""Linear layers of members: ready-made weights where there are many rows, factors on activations elsewhere."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import onefold
from onefold.ensemble import layers
from onefold.fast import linear as fast
from onefold.fast.members import linear_of_members
from onefold.fast.network import make_fast


def drawn(*size: int) -> Tensor:
    return torch.randn(size, dtype=torch.float64).requires_grad_()


@pytest.mark.parametrize("shape", [(6,), (6, 5), (6, 2, 3)])
@pytest.mark.parametrize("biased", [True, False])
def test_each_member_has_its_own_weight(shape: tuple[int, ...], biased: bool) -> None:
    torch.manual_seed(0)
    x, weights, bias = drawn(*shape, 4), drawn(3, 7, 4), drawn(7) if biased else None
    loop = torch.cat([F.linear(h, w, bias) for h, w in zip(x.chunk(3), weights, strict=True)])
    g = torch.randn_like(loop)
    inputs = [x, weights, *([] if bias is None else [bias])]
    expected = torch.autograd.grad(loop, inputs, g)
    for compute in (linear_of_members, fast.linear):
        y = compute(x, weights, bias)
        torch.testing.assert_close(y, loop)
        for mine, theirs in zip(torch.autograd.grad(y, inputs, g), expected, strict=True):
            torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("compute", [linear_of_members, fast.linear])
def test_no_examples_and_float64_under_autocast(compute: Callable[..., Tensor]) -> None:
    assert compute(torch.zeros(0, 5, 4), torch.zeros(3, 7, 4), None).shape == (0, 5, 7)
    x, weights = drawn(6, 5, 4), drawn(3, 7, 4)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = compute(x, weights, None)
    torch.testing.assert_close(rounded, compute(x, weights, None))


@pytest.mark.parametrize("wanted", [(True, False, False), (False, True, False), (False, False, True)])
def test_only_what_is_asked_for_gets_a_gradient(wanted: tuple[bool, bool, bool]) -> None:
    torch.manual_seed(0)
    inputs = [drawn(6, 5, 4), drawn(3, 7, 4), drawn(7)]
    for tensor, needed in zip(inputs, wanted, strict=True):
        tensor.requires_grad_(needed)
    fast.linear(inputs[0], inputs[1], inputs[2]).square().sum().backward()
    assert tuple(tensor.grad is not None for tensor in inputs) == wanted


def test_rounded_as_autocast_rounds() -> None:
    torch.manual_seed(0)
    found = []
    for compute in (linear_of_members, fast.linear):
        torch.manual_seed(1)
        x, weights, bias = (torch.randn(size).requires_grad_() for size in ((6, 5, 4), (3, 7, 4), (7,)))
        with torch.autocast("cpu", torch.bfloat16):
            y = compute(x, weights, bias)
        assert y.dtype == torch.bfloat16
        y.float().square().sum().backward()
        assert all(t.grad is not None and t.grad.dtype == torch.float32 for t in (x, weights, bias))
        found.append([y, x.grad, weights.grad, bias.grad])
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=2e-2, atol=2e-1)


class Tokens(nn.Module):
    """A layer that sees every token, and a head that sees an example once."""

    def __init__(self) -> None:
        super().__init__()
        self.mix, self.head = nn.Linear(4, 6), nn.Linear(6, 30)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.head(F.gelu(self.mix(x)).mean(1)))


def test_factors_go_where_there_is_less_to_multiply(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    x = torch.rand(3, 20, 4, dtype=torch.float64)
    student = onefold.batch_ensemble(Tokens().double(), 2, init="normal", example=x).train()
    torch._dynamo.reset()
    quick = copy.deepcopy(student)
    make_fast(quick.net)
    asked: list[tuple[int, ...]] = []

    def counted(h: Tensor, weights: Tensor, bias: Tensor | None) -> Tensor:
        asked.append(tuple(weights.shape))
        return linear_of_members(h, weights, bias)

    monkeypatch.setattr(layers, "linear_of_members", counted)
    ready = student(x)
    assert asked == [(2, 6, 4)]
    monkeypatch.setattr(layers, "many_rows", lambda *_: False)
    scaled = student(x)
    assert asked == [(2, 6, 4)]
    torch.testing.assert_close(ready, scaled)
    torch.testing.assert_close(quick(x), scaled)
    g = torch.randn_like(ready)
    for p, q in zip(
        torch.autograd.grad(ready, list(student.parameters()), g),
        torch.autograd.grad(quick(x), list(quick.parameters()), g),
        strict=True,
    ):
        torch.testing.assert_close(p, q)
