"""Fuses convolutions, normalisations and members' factors in a network's graph.

Whatever is not recognised is left unchanged, so that any network can be rewritten.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx

from onefold.fast.across import World, batch_norm_across
from onefold.fast.graph import (
    activation_after,
    addition,
    calls,
    changed_between,
    erase,
    norm_arguments,
    only_user,
    replace,
    shape_of,
    type_of,
    value,
)
from onefold.fast.linear import linear
from onefold.fast.members import linear_of_members, scaled, scaled_features
from onefold.fast.norm import Norm
from onefold.fast.normalize import normalizing
from onefold.fast.rewrite_convolutions import fuse_convolutions
from onefold.fast.rewrite_rows import fuse_layer_norm
from onefold.fast.scale import scale, scale_features


def rewrite(graph: fx.Graph, world: World | None = None) -> dict[str, int]:
    """Changes the graph in place; returns how many normalisations, sums and convolutions it fused.

    `world`: the processes over which normalisations marked with `batch_norm_across` compute their statistics.
    """
    found = {"norms": 0, "layer norms": 0, "sums": 0, "convolutions": 0}
    view_any_layout(graph)
    for node in calls(graph, F.batch_norm, batch_norm_across):
        across = node.target is batch_norm_across
        fused = fuse_norm(graph, node, normalizing(world if across else None))
        if across and not fused:
            raise ValueError("a BatchNorm with a weight and no bias, or with momentum None, over several processes")
        found["norms"] += fused
    for node in calls(graph, F.layer_norm):
        found["layer norms"] += fuse_layer_norm(graph, node)
    for node in calls(graph, scaled):
        found["sums"] += fuse_scale(graph, node)
    for plain, fast in ((scaled_features, scale_features), (linear_of_members, linear)):
        for node in calls(graph, plain):
            node.target = fast
    found["convolutions"] = fuse_convolutions(graph)
    count_batches_at_once(graph)
    graph.lint()
    return found


def sum_after(node: fx.Node) -> tuple[fx.Node | None, fx.Node | None, fx.Node | None]:
    """A sum of the node and another of the same shape, that other node, and the sum's activation; or three Nones."""
    total = only_user(node)
    if total is None or not addition(total):
        return None, None, None
    other = total.args[1] if total.args[0] is node else total.args[0]
    activation = activation_after(total)
    known = isinstance(other, fx.Node) and other is not node and shape_of(other) == shape_of(node)
    known = known and type_of(other) == type_of(node)  # a sum in higher precision must stay one
    if not known or activation is None or changed_between([other], total, activation):
        return None, None, None
    return total, other, activation  # type: ignore[return-value]


def scaling(node: Any) -> bool:
    return isinstance(node, fx.Node) and node.target is scaled


def fuse_norm(graph: fx.Graph, node: fx.Node, normalize: Callable[..., Any]) -> bool:
    """Fuses [s o] -> BatchNorm -> [relu] -> [r o], or BatchNorm -> + -> relu, as far as nothing else uses the values in
    between."""
    a = norm_arguments(node)
    if not can_be_normalized(**a):
        return False
    source, s, r = a["input"], None, None
    if scaling(source) and len(source.users) == 1:
        source, s = source.args
    relu = activation_after(node)
    total, onto, activation = sum_after(node)
    last = activation or relu or node
    after = only_user(last)
    if onto is None and after is not None and scaling(after) and after.args[0] is last:
        last, r = after, after.args[1]
    if changed_between([source], node if s is None else a["input"], last):
        return False
    users = [user for user in source.users if user not in (node, a["input"])]
    others = [user for user in users if node < user]
    y, q, x = source, None, None
    if s is None and len(others) == len(users):
        y, q, x = parts_of_sum(source)
        earliest = min([source, *(n for n in source.all_input_nodes if scaling(n))])
        if x is not None and changed_between([y, x], earliest, last):
            y, q, x = source, None, None
    members = next((int(value(f).shape[0]) for f in (s, r, q) if f is not None), 1)
    norm = Norm(members, float(a["eps"]), float(a["momentum"]), relu is not None or onto is not None, bool(others))
    running = a["running_mean"], a["running_var"]
    learned = (s, a["weight"], a["bias"], r, onto)
    with graph.inserting_before(last):
        fused = graph.call_function(normalize, (y, q, x, *learned, *running, a["training"], norm))
        result = graph.call_function(operator.getitem, (fused, 0)) if others else fused
        passed = graph.call_function(operator.getitem, (fused, 1)) if others else None
    replace(last, result)
    if passed is not None:
        # Later users take the input from this node's output, so that its backward adds their gradient in the same pass.
        passed.meta["example_value"] = value(source)
        source.replace_all_uses_with(passed, delete_user_cb=lambda user: user in others and passed < user)
    erase(graph, [last, relu, total, node, a["input"] if s is not None else None])
    if x is not None:
        erase(graph, [source, *(n for n in source.all_input_nodes if scaling(n))])
    return True


def can_be_normalized(
    *, input: Any, running_mean: Any, weight: Any, bias: Any, training: Any, momentum: Any, **_: Any
) -> bool:
    x = value(input)
    known = isinstance(x, Tensor) and x.dim() >= 2 and isinstance(training, bool) and isinstance(momentum, float)
    return known and (weight is None) == (bias is None) and (running_mean is not None or training)


def parts_of_sum(node: fx.Node) -> tuple[fx.Node, fx.Node | None, fx.Node | None]:
    """y, q and x, where the node is a sum (1 + q) o y + x; if it is not a sum, the node itself is y."""
    if not addition(node):
        return node, None, None
    x, y = node.args
    if not isinstance(x, fx.Node) or not isinstance(y, fx.Node) or x is y:
        return node, None, None
    if len({shape_of(n) for n in (x, y, node)}) > 1:
        return node, None, None
    if scaling(x) and len(x.users) == 1 and not (scaling(y) and len(y.users) == 1):
        x, y = y, x
    if scaling(y) and len(y.users) == 1:
        return y.args[0], y.args[1], x  # type: ignore[return-value]
    return y, None, x


def fuse_scale(graph: fx.Graph, node: fx.Node) -> bool:
    """Fuses s o y + x, or replaces s o y alone; returns whether there was a sum."""
    if node._erased:
        return False
    y, s = node.args
    shape = shape_of(node)
    if shape is None or len(shape) < 2:
        return False
    total, x = only_user(node), None
    if total is not None and addition(total):
        x = total.args[1] if total.args[0] is node else total.args[0]
        if shape_of(x) != shape or x is node or changed_between([y], node, total):
            x = None
    last = total if x is not None and total is not None else node
    with graph.inserting_before(last):
        fused = graph.call_function(scale, (y, s, x))
    replace(last, fused)
    erase(graph, [last, node])
    return x is not None


def view_any_layout(graph: fx.Graph) -> None:
    """Replaces `view` by `reshape`: a network may rely on contiguous convolution outputs, but here they are
    channels-last, where a `view` that merges dimensions would fail. Not if something later writes into the viewed
    memory, because `reshape` may copy it."""
    *_, output = graph.nodes
    for node in graph.nodes:
        sizes = node.args[1:]
        if node.op == "call_method" and node.target == "view" and sizes and not isinstance(sizes[0], torch.dtype):
            node.target = "view" if changed_between([node], node, output) else "reshape"


def count_batches_at_once(graph: fx.Graph) -> None:
    """Increments all of BatchNorm's counters together; otherwise each would be a kernel of its own."""
    found = [
        node
        for node in graph.nodes
        if node.op == "call_method"
        and node.target == "add_"
        and node.args[1:] == (1,)
        and not node.users
        and node.args[0].op == "placeholder"
        and getattr(value(node.args[0]), "dtype", None) == torch.int64
    ]
    if found:
        with graph.inserting_before(found[-1]):
            graph.call_function(torch._foreach_add_, ([node.args[0] for node in found], 1))
        for node in found:
            graph.erase_node(node)
