"""The parts of a transformer in bf16 on a GPU, outputs and gradients, beside float64: they tell which one is off."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from onefold.fast.convolve import Gradients, convolve, gradients_beside
from onefold.fast.layer_norm import layer_norm
from onefold.fast.linear import linear
from onefold.fast.scale import scale, scale_features

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
MEMBERS, IMAGES, TOKENS, WIDTH, HEADS = 3, 192, 64, 48, 3
DEVICE = "cuda"


def drawn(*shape: int) -> Tensor:
    """Numbers that bf16 holds exactly."""
    return torch.randn(shape, device=DEVICE).bfloat16().float()


def check(
    part: Callable[..., Tensor], exact: Callable[..., Tensor], *inputs: Tensor, then: Callable[[], None] | None = None
) -> None:
    """Under autocast and in float64, with the same gradient at the output; `then` comes after the backward pass."""
    mine, theirs = ([t.detach().to(kind).requires_grad_() for t in inputs] for kind in (torch.float32, torch.float64))
    with torch.autocast(DEVICE, torch.bfloat16):
        found = part(*mine)
    expected = exact(*theirs)
    g = torch.randn_like(found)
    found.backward(g)
    if then is not None:
        then()
    expected.backward(g.double())
    errors = [far(found, expected)]
    for one, other in zip(mine, theirs, strict=True):
        assert one.grad is not None
        assert other.grad is not None
        errors.append(far(one.grad, other.grad))
    assert max(errors) < 2e-2, errors


def far(found: Tensor, expected: Tensor) -> float:
    return float((found.double() - expected).norm() / expected.norm())


def attended(qkv: Tensor) -> Tensor:
    q, k, v = qkv.unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4).unbind()
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


@pytest.mark.parametrize("backend", [None, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION])
@pytest.mark.parametrize("spread", [1.0, 0.02])  # at first a network attends to all tokens alike
def test_attention(backend: SDPBackend | None, spread: float) -> None:
    def in_bf16(qkv: Tensor) -> Tensor:
        with contextlib.nullcontext() if backend is None else sdpa_kernel(backend):
            return attended(qkv.bfloat16())

    check(in_bf16, attended, (spread * drawn(IMAGES, TOKENS, 3 * WIDTH)).bfloat16())


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize(("kernel", "stride"), [(4, 4), (7, 2)])
def test_a_first_convolution(kernel: int, stride: int, beside: bool) -> None:
    """Of three channels, which are filled up with zeros."""
    settings, gradients = (stride, 0, 1, 1), Gradients() if beside else None

    def fast(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        with gradients_beside(gradients):
            return convolve(x, weight, weight.detach().bfloat16(), bias, *settings, relu=False)

    def exact(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.conv2d(x, weight, bias, *settings)

    inputs = drawn(IMAGES, 3, 32, 32), drawn(WIDTH, 3, kernel, kernel), drawn(WIDTH)
    check(fast, exact, *inputs, then=None if gradients is None else gradients.join)


@pytest.mark.parametrize(("inputs", "outputs"), [(WIDTH, 3 * WIDTH), (WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH)])
def test_members_linear_layers(inputs: int, outputs: int) -> None:
    def exact(x: Tensor, weights: Tensor, bias: Tensor) -> Tensor:
        return torch.as_tensor((x.unflatten(0, (MEMBERS, -1)) @ weights.mT[:, None] + bias).flatten(0, 1))

    check(linear, exact, drawn(IMAGES, TOKENS, inputs), drawn(MEMBERS, outputs, inputs), drawn(outputs))


@pytest.mark.parametrize("summed", [False, True])
def test_a_norm_whose_sum_goes_on(summed: bool) -> None:
    """The residual stream: the norm of a sum, and the sum itself for who comes after."""
    gain = torch.linspace(-1, 1, WIDTH, device=DEVICE)

    def fast(y: Tensor, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        first, second = (y.bfloat16(), x.bfloat16()) if summed else ((y + x).bfloat16(), None)
        z, total = layer_norm(first, second, weight, bias, 1e-5, True, True)
        return torch.as_tensor(z + total * gain.to(total.dtype))

    def exact(y: Tensor, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.layer_norm(y + x, (WIDTH,), weight, bias) + (y + x) * gain

    inputs = drawn(IMAGES, TOKENS, WIDTH), drawn(IMAGES, TOKENS, WIDTH), drawn(WIDTH), drawn(WIDTH)
    check(fast, exact, *inputs)


@pytest.mark.parametrize("shape", [(IMAGES, 3, 32, 32), (IMAGES, WIDTH, 8, 8), (IMAGES, WIDTH), (IMAGES, 10)])
def test_members_factors(shape: tuple[int, ...]) -> None:
    between = (1,) * (len(shape) - 2)

    def fast(y: Tensor, s: Tensor) -> Tensor:
        return (scale if between else scale_features)(y.bfloat16(), s)

    def exact(y: Tensor, s: Tensor) -> Tensor:
        factor = (1 + s).reshape(MEMBERS, 1, -1, *between)
        return torch.as_tensor((y.unflatten(0, (MEMBERS, -1)) * factor).flatten(0, 1))

    check(fast, exact, drawn(*shape), drawn(MEMBERS, shape[1]))
