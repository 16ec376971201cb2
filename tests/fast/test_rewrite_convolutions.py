"""Weights of convolutions, rounded before they are asked for."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, fx, nn

from onefold.fast.rewrite_convolutions import fuse_convolutions


@pytest.mark.parametrize("shared", [False, True])
def test_weights_are_rounded_once_and_the_first_convolution_waits_for_its_own_alone(shared: bool) -> None:
    class Chain(nn.Module):
        def forward(self, x: Tensor, a: Tensor, b: Tensor) -> Tensor:
            x = torch.conv2d(x, a if shared else b, padding=1)  # the order of the calls counts, not of the parameters
            return torch.conv2d(torch.conv2d(x, a, padding=1), b, padding=1)

    read = fx.symbolic_trace(Chain())
    x, a, b = torch.randn(2, 4, 5, 5), torch.randn(4, 4, 3, 3), torch.randn(4, 4, 3, 3)
    expected = read(x, a, b)
    assert fuse_convolutions(read.graph) == 3
    read.recompile()
    assert torch.equal(read(x, a, b), expected)
    calls = [node.target.__name__ for node in read.graph.nodes if node.op == "call_function"]
    calls = [name for name in calls if name != "getitem"]
    rounding = ["round_beside", "round_all", "convolve"]
    assert calls == rounding + (["convolve", "rounded_now"] if shared else ["rounded_now", "convolve"]) + ["convolve"]
