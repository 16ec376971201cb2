"""Makes networks fast, in place."""

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
    """Tells torch's compiler not to trace into the functions that the rewriting recognises.

    Done once, and not on import: the compiler takes longer to load than everything else here except torch.
    """
    for function in (scaled, scaled_features, linear_of_members, batch_norm_across):
        torch._dynamo.allow_in_graph(function)


def compiled(function: Callable[..., Any], **how: Any) -> Callable[..., Any]:
    """`torch.compile`, with each of those functions as a single call in the graph."""
    keep_whole()
    return torch.compile(function, **how)


def fused(module: fx.GraphModule, inputs: Sequence[Tensor], world: World | None = None) -> Callable[..., Any]:  # noqa: ARG001
    """The backend that `torch.compile` calls with a traced graph: returns the graph with its parts fused."""
    rewrite(module.graph, world)
    module.recompile()
    return module.forward


def make_fast(net: nn.Module, world: World | None = None) -> None:
    """From now on, calling the network runs its rewritten graph; parameters, modes and keys stay as they are.

    `world`: the processes whose statistics are combined by normalisations that are marked with `batch_norm_across`.
    """
    backend = fused if world is None else partial(fused, world=world)
    # A network is traced separately for training, evaluation, picked members, and input-only gradients.
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, 64)
    read = compiled(net._call_impl, backend=backend, fullgraph=True)

    def call(*args: Any, **kwargs: Any) -> Any:
        any_batch_size(args)
        with warnings.catch_warnings():
            # The compiler accesses the .grad of its inputs, which triggers a warning.
            warnings.filterwarnings("ignore", message="The .grad attribute of a Tensor that is not a leaf")
            return read(*args, **kwargs)

    net._compiled_call_impl = call


def any_batch_size(inputs: Sequence[Any]) -> None:
    """Marks the batch dimension as dynamic, so that one trace serves every batch size: a check's and a step's."""
    if not torch.compiler.is_compiling():
        for x in inputs:
            if isinstance(x, Tensor) and x.dim():
                torch._dynamo.maybe_mark_dynamic(x, 0)


def make_plain(net: nn.Module) -> None:
    """Undoes `make_fast`."""
    net._compiled_call_impl = None
