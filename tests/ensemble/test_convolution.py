"""The convolution of all members at once against M ordinary ones, with gradients of gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from onefold.ensemble.convolution import MemberConvolution


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("innermost", [True, False])
def test_against_a_loop(groups: int, biased: bool, innermost: bool) -> None:
    torch.manual_seed(0)

    def laid_out(t: Tensor) -> Tensor:
        return (t.movedim(2, -1).contiguous().movedim(-1, 2) if innermost else t).requires_grad_()

    x = laid_out(torch.randn(3, 2, 4, 5, 5, dtype=torch.float64))
    weights = laid_out(torch.randn(3, 6, 4 // groups, 3, 3, dtype=torch.float64))
    bias = torch.randn(6, dtype=torch.float64, requires_grad=True) if biased else None
    settings = ((2, 2), (1, 1), (1, 1), False, [0, 0], groups)

    def at_once(x: Tensor, weights: Tensor, bias: Tensor | None) -> Tensor:
        return torch.as_tensor(MemberConvolution.apply(x, weights, bias, settings))

    loop = torch.stack([F.conv2d(h, w, bias, 2, 1, 1, groups) for h, w in zip(x, weights, strict=True)])
    torch.testing.assert_close(at_once(x, weights, bias), loop)
    rows = at_once(x, weights, bias).flatten(0, 1)
    assert rows.is_contiguous(memory_format=torch.channels_last if innermost else torch.contiguous_format)
    inputs: Any = (x, weights, bias)
    assert torch.autograd.gradcheck(at_once, inputs)
    assert torch.autograd.gradgradcheck(at_once, inputs)


def test_only_what_is_asked_for() -> None:
    x, weights = torch.randn(2, 1, 2, 4, 4), torch.randn(2, 3, 2, 3, 3, requires_grad=True)
    settings = ((1, 1), (0, 0), (1, 1), False, [0, 0], 1)
    output = torch.as_tensor(MemberConvolution.apply(x, weights, None, settings))
    (gradient,) = torch.autograd.grad(output.sum(), weights)
    assert gradient.shape == weights.shape
