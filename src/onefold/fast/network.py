"""Networks made fast in place."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, fx, nn

from onefold.fast.across import World, batch_norm_across
from onefold.fast.members import linear_of_members, scaled, scaled_features
from onefold.fast.rewrite import rewrite


@cache
def keep_whole() -> None:
    """Tells torch's compiler not to look into the functions that the rewriting looks for.

    Once, and not when this file is imported: the compiler takes longer to load than everything else here but torch.
    """
    for function in (scaled, scaled_features, linear_of_members, batch_norm_across):
        torch._dynamo.allow_in_graph(function)


def compiled(function: Callable[..., Any], **how: Any) -> Callable[..., Any]:
    """`torch.compile`, in whose graphs those functions are one call each."""
    keep_whole()
    return torch.compile(function, **how)


def fused(module: fx.GraphModule, inputs: Sequence[Tensor], world: World | None = None) -> Callable[..., Any]:  # noqa: ARG001
    """What `torch.compile` calls with the graph it has read: the same graph with its parts put together."""
    rewrite(module.graph, world)
    module.recompile()
    return module.forward


def make_fast(net: nn.Module, world: World | None = None) -> None:
    """From now on the network's calls run the rewritten graph; its parameters, modes and keys stay as they are.

    `world` are the processes that its normalisations ask, where they say that they do.
    """
    backend = fused if world is None else partial(fused, world=world)
    # One network is read anew for training, for rest, for picked members and with gradients for its input alone.
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, 64)
    read = compiled(net._call_impl, backend=backend, fullgraph=True)

    def call(*args: Any, **kwargs: Any) -> Any:
        any_batch_size(args)
        with warnings.catch_warnings():
            # The compiler looks at the gradient of its inputs, and warns of having done so.
            warnings.filterwarnings("ignore", message="The .grad attribute of a Tensor that is not a leaf")
            return read(*args, **kwargs)

    net._compiled_call_impl = call


def any_batch_size(inputs: Sequence[Any]) -> None:
    """What is read once serves every number of rows: the few of a check and those of a step."""
    if not torch.compiler.is_compiling():
        for x in inputs:
            if isinstance(x, Tensor) and x.dim():
                torch._dynamo.maybe_mark_dynamic(x, 0)


def make_plain(net: nn.Module) -> None:
    """Takes `make_fast` back."""
    net._compiled_call_impl = None
