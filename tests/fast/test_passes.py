"""The passes of a normalisation with members against the formula, differentiated by torch."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from onefold.fast.layout import innermost_channels
from onefold.fast.norm import Norm
from onefold.fast.normalize import normalize
from onefold.fast.scale import scale

CASES = list(itertools.product((1, 3), (True, False), (True, False), (True, False), ("none", "x", "q o y + x")))


def formula(
    y: Tensor,
    add: tuple[Tensor | None, Tensor] | None,
    s: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    r: Tensor | None,
    relu: bool,
    members: int,
    statistics: tuple[Tensor, Tensor] | None,
) -> tuple[Tensor, Tensor]:
    """z and its input: r_m o relu(gamma o (s_m o y_m - mu) / sigma + beta), member by member."""

    def by_channel(v: Tensor) -> Tensor:
        return v[:, None, None]

    total = y
    if add is not None:
        q, x = add
        parts = y.chunk(members)
        scaled = y if q is None else torch.cat([part * by_channel(1 + q[m]) for m, part in enumerate(parts)])
        total = scaled + x
    parts = total.chunk(members)
    u = total if s is None else torch.cat([part * by_channel(1 + s[m]) for m, part in enumerate(parts)])
    if statistics is None:
        mean, var = u.mean((0, 2, 3)), u.var((0, 2, 3), correction=0)
    else:
        mean, var = statistics
    v = (u - by_channel(mean)) / by_channel(var + 1e-5).sqrt()
    if weight is not None and bias is not None:
        v = v * by_channel(weight) + by_channel(bias)
    v = v.relu() if relu else v
    z = v if r is None else torch.cat([part * by_channel(1 + r[m]) for m, part in enumerate(v.chunk(members))])
    return z, total


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("members", "scales", "affine", "relu", "sum_"), CASES)
def test_values_gradients_and_statistics_are_those_of_the_formula(
    members: int, scales: bool, affine: bool, relu: bool, sum_: str, training: bool
) -> None:
    torch.manual_seed(0)
    shape, c = (2 * members, 5, 3, 4), 5
    y = (torch.randn(shape, dtype=torch.float64) * 2 + 3).requires_grad_()

    def vector(*size: int) -> Tensor:
        return (torch.randn(size, dtype=torch.float64) / 3).requires_grad_()

    s, r = (vector(members, c), vector(members, c)) if scales else (None, None)
    weight, bias = (vector(c), vector(c)) if affine else (None, None)
    x = vector(*shape) if sum_ != "none" else None
    q = vector(members, c) if sum_ == "q o y + x" else None
    mean, var = torch.randn(c, dtype=torch.float64), torch.rand(c, dtype=torch.float64) + 0.5
    old_mean, old_var = mean.clone(), var.clone()

    norm = Norm(members, 1e-5, 0.1, relu, shared=True)
    z, passed = normalize(y, q, x, s, weight, bias, r, None, mean, var, training, norm)
    add = None if x is None else (q, x)
    statistics = None if training else (old_mean, old_var)
    expected, total = formula(y, add, s, weight, bias, r, relu, members, statistics)
    torch.testing.assert_close(z, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(passed, total, rtol=1e-12, atol=1e-12)

    of_z, of_input = torch.randn_like(z), torch.randn_like(z)
    learned = [t for t in (y, q, x, s, weight, bias, r) if t is not None]
    found = torch.autograd.grad((z * of_z).sum() + (passed * of_input).sum(), learned)
    wanted = torch.autograd.grad((expected * of_z).sum() + (total * of_input).sum(), learned)
    for mine, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-9)
    if training:
        scaled = (
            total
            if s is None
            else torch.cat([p * (1 + s[m])[:, None, None] for m, p in enumerate(total.chunk(members))])
        )
        torch.testing.assert_close(mean, 0.9 * old_mean + 0.1 * scaled.mean((0, 2, 3)))
        torch.testing.assert_close(var, 0.9 * old_var + 0.1 * scaled.var((0, 2, 3), correction=1))
    else:
        assert torch.equal(mean, old_mean)
        assert torch.equal(var, old_var)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("scales", [True, False])
@pytest.mark.parametrize("shared", [True, False])
def test_a_sum_between_the_norm_and_its_activation(training: bool, scales: bool, shared: bool) -> None:
    torch.manual_seed(0)
    members, c = 3, 5
    y, onto = (torch.randn(2 * members, c, 3, 4, dtype=torch.float64).requires_grad_() for _ in range(2))
    s = (torch.randn(members, c, dtype=torch.float64) / 3).requires_grad_() if scales else None
    weight, bias = torch.randn(2, c, dtype=torch.float64).requires_grad_()
    mean, var = torch.randn(c, dtype=torch.float64), torch.rand(c, dtype=torch.float64) + 0.5
    statistics = None if training else (mean.clone(), var.clone())
    norm = Norm(members, 1e-5, 0.1, relu=True, shared=shared)
    answer = normalize(y, None, None, s, weight, bias, None, onto, mean, var, training, norm)
    z = answer[0] if shared else answer
    expected = (formula(y, None, s, weight, bias, None, False, members, statistics)[0] + onto).relu()
    torch.testing.assert_close(z, expected, rtol=1e-12, atol=1e-12)
    learned = [t for t in (y, onto, s, weight, bias) if t is not None]
    g = torch.randn_like(z)
    wanted = torch.autograd.grad(expected, learned, g)
    for mine, theirs in zip(torch.autograd.grad(z, learned, g), wanted, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("with_x", [True, False])
def test_scaled_sums(with_x: bool) -> None:
    y = torch.randn(6, 4, 2, 3, dtype=torch.float64, requires_grad=True)
    s = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    x = torch.randn_like(y).requires_grad_() if with_x else None
    z = scale(y, s, x)
    expected = torch.cat([part * (1 + s[m])[:, None, None] for m, part in enumerate(y.chunk(3))])
    expected = expected if x is None else expected + x
    torch.testing.assert_close(z, expected)
    learned = [t for t in (y, s, x) if t is not None]
    g = torch.randn_like(z)
    for mine, theirs in zip(torch.autograd.grad(z, learned, g), torch.autograd.grad(expected, learned, g), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_channels_go_innermost_and_values_stay() -> None:
    for shape in ((3, 4), (3, 4, 5), (3, 4, 5, 6), (3, 4, 5, 6, 2)):
        x = torch.randn(shape)
        moved = innermost_channels(x)
        assert torch.equal(moved, x)
        assert moved.stride(1) == 1
