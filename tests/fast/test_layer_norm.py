"""LayerNorm with its sum and its rounding, against torch's."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from onefold.fast import network
from onefold.fast.layer_norm import layer_norm
from onefold.fast.network import make_fast
from onefold.fast.rewrite import rewrite


def drawn(*size: int) -> Tensor:
    return torch.randn(size, dtype=torch.float64).requires_grad_()


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("summed", [True, False])
@pytest.mark.parametrize("shared", [True, False])
def test_values_and_gradients_are_torch_s(affine: bool, summed: bool, shared: bool) -> None:
    torch.manual_seed(0)
    y, x = drawn(3, 4, 7), drawn(3, 4, 7) if summed else None
    weight, bias = (drawn(7), drawn(7)) if affine else (None, None)
    total = y if x is None else y + x
    z = F.layer_norm(total, (7,), weight, bias, 1e-3)
    inputs = [t for t in (y, x, weight, bias) if t is not None]
    g, also = torch.randn_like(z), torch.randn_like(z)
    expected = torch.autograd.grad([z, total] if shared else [z], inputs, [g, also] if shared else [g])
    answer = layer_norm(y, x, weight, bias, 1e-3, rounded=False, shared=shared)
    found, passed = answer if shared else (answer, None)
    torch.testing.assert_close(found, z)
    if passed is not None:
        torch.testing.assert_close(passed, total)
    outputs = [found] if passed is None else [found, passed]
    gradients = torch.autograd.grad(outputs, inputs, [g, also] if shared else [g])
    for mine, theirs in zip(gradients, expected, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_who_needs_the_sum_alone_gets_its_gradient() -> None:
    y, x, weight, bias = drawn(2, 7), drawn(2, 7), drawn(7), drawn(7)
    _, passed = layer_norm(y, x, weight, bias, 1e-5, rounded=True, shared=True)
    g = torch.randn_like(passed)
    passed.backward(g)
    assert y.grad is not None
    assert x.grad is not None
    assert torch.equal(y.grad, g)
    assert torch.equal(x.grad, g)
    assert weight.grad is None


def test_a_sum_in_two_precisions_gives_each_its_gradient() -> None:
    torch.manual_seed(0)
    y, x = torch.randn(5, 16, dtype=torch.bfloat16).requires_grad_(), torch.randn(5, 16).requires_grad_()
    weight, bias = torch.rand(16).requires_grad_(), torch.rand(16).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        z, total = layer_norm(y, x, weight, bias, 1e-5, rounded=True, shared=True)
        exact = layer_norm(y, x, weight, bias, 1e-5, rounded=False, shared=False)
    assert (z.dtype, total.dtype, exact.dtype) == (torch.bfloat16, torch.float32, torch.float32)
    torch.testing.assert_close(exact, F.layer_norm(y.float() + x, (16,), weight, bias))
    assert torch.equal(z, exact.bfloat16())
    (z.float().square().sum() + total.square().sum()).backward()
    assert y.grad is not None
    assert x.grad is not None
    assert (y.grad.dtype, x.grad.dtype) == (torch.bfloat16, torch.float32)
    torch.testing.assert_close(y.grad.float(), x.grad, rtol=1e-2, atol=1e-2)


class PreNorm(nn.Module):
    """Two halves of a transformer's block, and a norm that is looked at by more than products."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(6) for _ in range(3))
        self.first, self.second, self.head = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = x + self.first(self.norms[0](x))
        h = h + F.gelu(self.second(self.norms[1](h)))
        h = self.norms[2](h)
        return torch.as_tensor(self.head(h * h.mean()))


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[fx.Graph]:
    seen: list[fx.Graph] = []

    def kept(graph: fx.Graph, world: object = None) -> dict[str, int]:
        found = rewrite(graph, world)  # type: ignore[arg-type]
        seen.append(graph)
        return found

    monkeypatch.setattr(network, "rewrite", kept)
    torch._dynamo.reset()
    return seen


def test_a_transformer_s_norms_are_put_together(graphs: list[fx.Graph]) -> None:
    torch.manual_seed(0)
    net = PreNorm().double()
    quick = copy.deepcopy(net)
    make_fast(quick)
    x = drawn(2, 5, 6)
    expected, found = net(x), quick(x)
    torch.testing.assert_close(found, expected)
    g = torch.randn_like(found)
    theirs = torch.autograd.grad(expected, [x, *net.parameters()], g)
    for mine, other in zip(torch.autograd.grad(found, [x, *quick.parameters()], g), theirs, strict=True):
        torch.testing.assert_close(mine, other)
    calls = [node for node in graphs[-1].nodes if node.target is layer_norm]
    # Of each: whether it has a sum, whether it rounds, whether its sum is needed elsewhere.
    assert [(n.args[1] is not None, n.args[5], n.args[6]) for n in calls] == [
        (False, True, True),
        (True, True, True),
        (True, False, False),
    ]


class Around(nn.Module):
    """Products that are not asked to round, and one whose arguments have names."""

    def __init__(self) -> None:
        super().__init__()
        self.norms, self.weight = nn.ModuleList(nn.LayerNorm(6) for _ in range(2)), nn.Parameter(torch.rand(6, 6))

    def forward(self, x: Tensor) -> Tensor:
        h = self.norms[0](x)
        with torch.autocast("cpu", enabled=False):
            h = F.linear(h, self.weight)
        return F.linear(input=self.norms[1](h), weight=self.weight)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_products_that_autocast_leaves_alone_get_what_it_gives_them(kind: torch.dtype) -> None:
    torch._dynamo.reset()
    net = Around().to(kind)
    quick = copy.deepcopy(net)
    make_fast(quick)
    x = torch.randn(2, 5, 6, dtype=kind)
    with torch.autocast("cpu", torch.bfloat16):
        expected, found = net(x), quick(x)
    assert found.dtype == expected.dtype
    torch.testing.assert_close(found, expected)


def test_float64_is_not_rounded() -> None:
    torch._dynamo.reset()
    net = nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 3)).double()
    quick = copy.deepcopy(net)
    make_fast(quick)
    x = torch.randn(2, 6, dtype=torch.float64)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(quick(x), net(x))


class Unusual(nn.Module):
    """Norms that are left alone: over two dimensions, and with a weight and no bias."""

    def __init__(self) -> None:
        super().__init__()
        self.both, self.unbiased = nn.LayerNorm((5, 6)), nn.LayerNorm(6, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.unbiased(self.both(x)))


def test_others_are_left_alone(graphs: list[fx.Graph]) -> None:
    net = Unusual().double()
    quick = copy.deepcopy(net)
    make_fast(quick)
    x = drawn(2, 5, 6)
    torch.testing.assert_close(quick(x), net(x))
    assert not any(node.target is layer_norm for node in graphs[-1].nodes)


class Halves(nn.Module):
    """A sum of bf16 and float16, which is float32."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(6)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.norm(x.bfloat16() + x.half()))


def test_a_sum_of_two_halves_is_torch_s(graphs: list[fx.Graph]) -> None:
    net, x = Halves(), torch.randn(2, 5, 6).requires_grad_()
    quick = copy.deepcopy(net)
    make_fast(quick)
    expected, found = net(x), quick(x)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.autograd.grad(found.sum(), x), torch.autograd.grad(expected.sum(), x))
    assert [node.args[1] for node in graphs[-1].nodes if node.target is layer_norm] == [None]
