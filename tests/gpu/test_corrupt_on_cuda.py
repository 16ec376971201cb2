"""Corruptions on a GPU: the CPU's images but for rounding, the same bits each time and however a batch is split."""

from __future__ import annotations

import pytest
import torch

from onefold.data.corrupt import CORRUPTIONS, EXTRA, corrupt

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


@pytest.mark.parametrize("side", [32, 64])
@pytest.mark.parametrize("name", [*CORRUPTIONS, *EXTRA])
def test_as_on_the_cpu(name: str, side: int) -> None:
    coarse = torch.rand(70, 3, 6, 6, generator=torch.Generator().manual_seed(0))
    x = (torch.nn.functional.interpolate(coarse, (side, side), mode="bilinear") * 255).to(torch.uint8)
    for severity in (1, 3, 5):
        here = corrupt(x, name, severity, 3)
        there = corrupt(x.cuda(), name, severity, 3)
        assert there.is_cuda
        # A value next to a whole number or to a threshold may fall on its other side.
        assert (here == there.cpu()).float().mean().item() > 0.995
        parts = [corrupt(x[:11].cuda(), name, severity, 3), corrupt(x[11:].cuda(), name, severity, 3, first=11)]
        assert torch.equal(torch.cat(parts), there)
