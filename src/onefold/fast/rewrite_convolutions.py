"""Fuses convolutions in a network's graph with their activations, and rounds all their weights together."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from onefold.fast.convolve import convolve, round_all
from onefold.fast.graph import activation_after, calls, changed_between, convolution_arguments, erase, replace


def fuse_convolutions(graph: fx.Graph) -> int:
    """Fuses convolutions with the activation that follows, and rounds all weights first, in a few kernels; returns the
    number of convolutions."""
    nodes = [node for target in (torch.conv2d, torch.conv1d, torch.conv3d) for node in calls(graph, target)]
    nodes = [node for node in nodes if can_be_convolved(**convolution_arguments(node))]
    if not nodes:
        return 0
    weights = list(dict.fromkeys(convolution_arguments(node)["weight"] for node in nodes))
    first = next(node for node in graph.nodes if node.op != "placeholder")
    with graph.inserting_before(first):
        every = graph.call_function(round_all, tuple(weights))
        rounded = {w: graph.call_function(operator.getitem, (every, k)) for k, w in enumerate(weights)}
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


def can_be_convolved(*, weight: Any, padding: Any, **_: Any) -> bool:
    return isinstance(weight, fx.Node) and weight.op == "placeholder" and not isinstance(padding, str)
