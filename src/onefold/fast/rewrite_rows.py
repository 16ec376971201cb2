"""Fuses LayerNorm in a network's graph with the sum before it and the rounding after it."""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx

from onefold.fast.graph import addition, calls, changed_between, erase, replace, shape_of, type_of, value
from onefold.fast.layer_norm import layer_norm
from onefold.fast.linear import linear
from onefold.fast.members import linear_of_members

PRODUCTS = (F.linear, linear_of_members, linear)  # under autocast they round their inputs
REGIONS = (torch.amp.autocast_mode._enter_autocast,)  # the network's own autocast regions, where other rules apply
WIDEST = 8192  # features that a kernel can hold


def fuse_layer_norm(graph: fx.Graph, node: fx.Node) -> bool:
    """Fuses [x +] y -> LayerNorm [-> rounding]; other users of the sum take it from the fused node."""
    a = arguments(node)
    source = a["input"]
    if not can_be_normalized(**a):
        return False
    users = [user for user in source.users if user is not node]
    others = [user for user in users if node < user]
    y, x = source, None
    if len(others) == len(users) and addition(source):
        first, second = source.args
        alike = isinstance(first, fx.Node) and isinstance(second, fx.Node) and first is not second
        alike = alike and len({shape_of(n) for n in (first, second, source)}) == 1
        alike = alike and type_of(source) in (type_of(first), type_of(second))  # bf16 + float16 is neither
        if alike and not changed_between([first, second], source, node):
            x, y = first, second
    rounded = all(user.target in PRODUCTS and user.args[:1] == (node,) for user in node.users)
    rounded = rounded and not any(calls(graph, *REGIONS))
    with graph.inserting_before(node):
        rest = (a["weight"], a["bias"], float(a["eps"]), rounded, bool(others))
        fused = graph.call_function(layer_norm, (y, x, *rest))
        result = graph.call_function(operator.getitem, (fused, 0)) if others else fused
        passed = graph.call_function(operator.getitem, (fused, 1)) if others else None
    replace(node, result)
    if passed is not None:
        # Later users take the sum from this node's output, so that its backward adds their gradient in the same pass.
        passed.meta["example_value"] = value(source)
        source.replace_all_uses_with(passed, delete_user_cb=lambda user: user in others)
    erase(graph, [node, source if x is not None else None])
    return True


def arguments(node: fx.Node) -> dict[str, Any]:
    names = ("input", "normalized_shape", "weight", "bias", "eps")
    defaults = {"weight": None, "bias": None, "eps": 1e-5}
    return defaults | dict(zip(names, node.args, strict=False)) | dict(node.kwargs)


def can_be_normalized(*, input: Any, normalized_shape: Any, weight: Any, bias: Any, **_: Any) -> bool:
    x = value(input)
    if not isinstance(x, Tensor) or not x.is_floating_point() or (x.dtype == torch.float64 and x.is_cuda):
        return False
    last = tuple(normalized_shape) == (x.shape[-1],) and x.dim() >= 2 and x.shape[-1] <= WIDEST
    return last and (weight is None) == (bias is None)
