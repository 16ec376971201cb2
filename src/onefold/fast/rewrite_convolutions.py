"""Convolutions in a network's graph, with their activations and with weights that are rounded all at once."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from onefold.fast.convolve import convolve, round_all, round_beside, rounded_now
from onefold.fast.graph import activation_after, calls, changed_between, convolution_arguments, erase, replace


def fuse_convolutions(graph: fx.Graph) -> int:
    """Convolutions with the activation that follows. Weights are rounded at the beginning, in a few kernels: the first
    convolution's, and beside it all others'."""
    nodes = [node for target in (torch.conv2d, torch.conv1d, torch.conv3d) for node in calls(graph, target)]
    nodes = [node for node in nodes if can_be_convolved(**convolution_arguments(node))]
    if not nodes:
        return 0
    rounded = rounded_weights(graph, nodes)
    for node in nodes:
        a, relu = convolution_arguments(node), activation_after(node)
        alone = relu is None or a["bias"] is None or changed_between([a["input"]], node, relu)
        last = node if relu is None or alone else relu
        with graph.inserting_before(last):
            rest = (a["bias"], a["stride"], a["padding"], a["dilation"], a["groups"], last is not node)
            fused = graph.call_function(convolve, (a["input"], a["weight"], rounded[a["weight"]], *rest))
        replace(last, fused)
        erase(graph, [last, node])
    return len(nodes)


def rounded_weights(graph: fx.Graph, nodes: list[fx.Node]) -> dict[fx.Node, fx.Node]:
    """Of some convolutions, by their weights."""
    order = {node: place for place, node in enumerate(graph.nodes)}
    weight_of = {node: convolution_arguments(node)["weight"] for node in sorted(nodes, key=order.__getitem__)}
    first, *others = dict.fromkeys(weight_of.values())
    begin = next(node for node in graph.nodes if node.op != "placeholder")
    with graph.inserting_before(begin):
        part = graph.call_function(round_beside, tuple(others)) if others else None
        every = {first: graph.call_function(operator.getitem, (graph.call_function(round_all, (first,)), 0))}
    if part is not None:
        with graph.inserting_before(next(node for node, weight in weight_of.items() if weight is not first)):
            now = graph.call_function(rounded_now, (part,))
            every |= {weight: graph.call_function(operator.getitem, (now, k)) for k, weight in enumerate(others)}
    return every


def can_be_convolved(*, weight: Any, padding: Any, **_: Any) -> bool:
    return isinstance(weight, fx.Node) and weight.op == "placeholder" and not isinstance(padding, str)
