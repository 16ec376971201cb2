"""Networks made fast in place."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn

from onefold.fast.members import scaled, scaled_features
from onefold.fast.rewrite import rewrite

for function in (scaled, scaled_features):
    torch._dynamo.allow_in_graph(function)  # the rewriting looks for it


def fused(module: fx.GraphModule, inputs: Sequence[Tensor]) -> Callable[..., Any]:  # noqa: ARG001
    """What `torch.compile` calls with the graph it has read: the same graph with its parts put together."""
    rewrite(module.graph)
    module.recompile()
    return module.forward


def make_fast(net: nn.Module) -> None:
    """From now on the network's calls run the rewritten graph; its parameters, modes and keys stay as they are."""
    # One network is read anew for training, for rest, for picked members and with gradients for its input alone.
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, 64)
    compiled = torch.compile(net._call_impl, backend=fused, fullgraph=True)

    def call(*args: Any, **kwargs: Any) -> Any:
        with warnings.catch_warnings():
            # The compiler looks at the gradient of its inputs, and warns of having done so.
            warnings.filterwarnings("ignore", message="The .grad attribute of a Tensor that is not a leaf")
            return compiled(*args, **kwargs)

    net._compiled_call_impl = call


def make_plain(net: nn.Module) -> None:
    """Takes `make_fast` back."""
    net._compiled_call_impl = None
