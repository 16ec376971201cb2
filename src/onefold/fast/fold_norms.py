"""Folds BatchNorm into the preceding convolutions, for networks used only for inference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from onefold.fast.graph import calls, convolution_arguments, norm_arguments, only_user
from onefold.fast.network import compiled

Pair = tuple[int, int]  # addresses of a convolution's weight and of the running mean that follows it


class Seen(Exception):
    """Raised once the graph is inspected, so that it neither runs nor uses up one of the compiler's cache entries."""


def foldable(net: nn.Module, x: Tensor) -> list[tuple[str, str]]:
    """Pairs of names: convolutions whose output is used only by a BatchNorm in evaluation mode, and that BatchNorm."""
    found: list[list[Pair]] = []

    def look(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        found.append(found_in(module.graph, inputs))
        raise Seen

    try:
        with torch.no_grad():
            compiled(net._call_impl, backend=look, fullgraph=True)(x)
    except Exception:
        if not found:
            raise
    pairs = found[0] if found else []
    owners = {module.weight.data_ptr(): name for name, module in net.named_modules() if isinstance(module, nn.Conv2d)}
    norms = {
        module.running_mean.data_ptr(): name
        for name, module in net.named_modules()
        if isinstance(module, nn.BatchNorm2d) and module.running_mean is not None
    }
    return [(owners[weight], norms[mean]) for weight, mean in pairs if weight in owners and mean in norms]


def fold_pairs(net: nn.Module, pairs: Sequence[tuple[str, str]]) -> None:
    """In place: W <- a o W and b <- a b + beta - a mean, with a = gamma / sigma; the BatchNorm becomes an Identity."""
    for conv, norm in pairs:
        fold(net.get_submodule(conv), net.get_submodule(norm))
        parent, _, name = norm.rpartition(".")
        setattr(net.get_submodule(parent), name, nn.Identity())


def found_in(graph: fx.Graph, inputs: Sequence[Any]) -> list[Pair]:
    """Foldable pairs in a graph, whose weights and statistics are used only once."""
    values = dict(zip((node for node in graph.nodes if node.op == "placeholder"), inputs, strict=True))
    pairs = []
    for norm in calls(graph, F.batch_norm):
        a = norm_arguments(norm)
        source = a["input"]
        if a["training"] or not isinstance(source, fx.Node) or source.target is not torch.conv2d:
            continue
        weight, mean = convolution_arguments(source)["weight"], a["running_mean"]
        if only_user(source) is norm and all(part in values and len(part.users) == 1 for part in (weight, mean)):
            pairs.append((values[weight].data_ptr(), values[mean].data_ptr()))
    return pairs


@torch.no_grad()
def fold(conv: nn.Module, norm: nn.Module) -> None:
    assert isinstance(conv, nn.Conv2d)
    assert isinstance(norm, nn.BatchNorm2d)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    kind = torch.promote_types(conv.weight.dtype, torch.float32)
    a = (norm.running_var.to(kind) + norm.eps).rsqrt()
    a = a if norm.weight is None else a * norm.weight.to(kind)
    b = -a * norm.running_mean.to(kind)
    b = b if norm.bias is None else b + norm.bias.to(kind)
    b = b if conv.bias is None else b + a * conv.bias.to(kind)
    conv.weight.copy_(conv.weight.to(kind) * a.reshape(-1, 1, 1, 1))
    conv.bias = nn.Parameter(b.to(norm.running_mean.dtype), requires_grad=conv.weight.requires_grad)
