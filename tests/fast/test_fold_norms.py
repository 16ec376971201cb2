"""BatchNorm folded into convolutions: looking for the pairs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from onefold.fast.fold_norms import foldable
from onefold.models import wide_resnet


def test_looking_leaves_nothing_behind() -> None:
    """A process reads so many graphs of one forward pass only, and a table of the paper has eighty runs."""
    x = torch.rand(2, 3, 8, 8)
    torch._dynamo.reset()
    with torch._dynamo.config.patch(recompile_limit=3):
        for _ in range(5):
            pairs = foldable(wide_resnet(10, 1, 10).eval(), x)
            assert ("stage1.0.conv1", "stage1.0.norm2") in pairs


def test_what_cannot_be_read_says_so() -> None:
    class Broken(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            torch._dynamo.graph_break()
            return x

    with pytest.raises(Exception, match="graph_break"):
        foldable(Broken(), torch.rand(2, 3))
