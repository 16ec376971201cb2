"""Graphs as the rewriting gets them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, fx

from onefold.fast.across import batch_norm_across
from onefold.fast.members import linear_of_members, scaled, scaled_features
from onefold.fast.network import compiled

ROWS, TWO = torch.rand(6, 3), torch.rand(2, 3)


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (scaled, (ROWS, TWO)),
        (scaled_features, (ROWS, TWO)),
        (linear_of_members, (ROWS, torch.rand(2, 4, 3), torch.rand(4))),
        (batch_norm_across, (ROWS, None, None, None, None, True, 0.1, 1e-5)),
    ],
)
def test_what_the_rewriting_looks_for_is_one_call(function: Callable[..., Tensor], inputs: tuple[Any, ...]) -> None:
    seen: list[Any] = []

    def look(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:  # noqa: ARG001
        seen.extend(node.target for node in module.graph.nodes if node.op == "call_function")
        return module.forward

    def call(*args: Any) -> Tensor:
        return function(*args)

    answer = compiled(call, backend=look, fullgraph=True)(*inputs)
    assert seen == [function]
    torch.testing.assert_close(answer, function(*inputs))
