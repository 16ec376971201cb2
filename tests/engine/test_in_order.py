"""Random maps are the same in both memory formats, and keep their format."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from onefold.engine.in_order import InOrder

DRAWS: dict[str, Callable[[Tensor], Tensor]] = {
    "dropout": lambda x: F.dropout(x, 0.5),
    "dropout of whole channels": lambda x: F.dropout2d(x, 0.5),
    "native": lambda x: torch.native_dropout(x, 0.5, True)[0],
    "noise": lambda x: x + torch.randn_like(x),
    "in place": lambda x: x * torch.empty_like(x).bernoulli_(0.5),
    "activation": lambda x: F.rrelu(x - 0.5, training=True),
}


@pytest.mark.parametrize("draw", DRAWS)
def test_the_same_numbers_in_both_formats(draw: str) -> None:
    x = torch.rand(2, 5, 4, 3, generator=torch.Generator().manual_seed(0))
    other = x.contiguous(memory_format=torch.channels_last)
    found = []
    for given in (x, other):
        torch.manual_seed(1)
        with InOrder():
            given = given.clone().requires_grad_()
            drawn = DRAWS[draw](given)
            drawn.square().sum().backward()
        assert drawn.stride() == given.stride()
        assert given.grad is not None
        found.append((drawn.detach(), given.grad))
    for one, same in zip(*found, strict=True):
        torch.testing.assert_close(one, same)
    torch.manual_seed(1)
    assert torch.equal(DRAWS[draw](x), found[0][0])  # nothing changes for contiguous maps


def test_they_differ_otherwise() -> None:
    x = torch.rand(2, 5, 4, 3)
    drawn = []
    for given in (x, x.contiguous(memory_format=torch.channels_last)):
        torch.manual_seed(1)
        drawn.append(F.dropout(given, 0.5))
    assert not torch.equal(*drawn)
