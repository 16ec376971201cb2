"""Reading and changing a network's graph, as torch's compiler reads it off: functions of torch, one after the other."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import fx

ADDITIONS = (operator.add, operator.iadd, torch.add)


def calls(graph: fx.Graph, *targets: Any) -> Iterator[fx.Node]:
    yield from [node for node in graph.nodes if node.op == "call_function" and node.target in targets]


def norm_arguments(node: fx.Node) -> dict[str, Any]:
    """The arguments of a batch_norm by their names."""
    names = ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")
    defaults = {"weight": None, "bias": None, "training": False, "momentum": 0.1, "eps": 1e-5}
    return defaults | dict(zip(names, node.args, strict=False)) | dict(node.kwargs)


def convolution_arguments(node: fx.Node) -> dict[str, Any]:
    names = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
    defaults = {"bias": None, "stride": 1, "padding": 0, "dilation": 1, "groups": 1}
    return defaults | dict(zip(names, node.args, strict=False)) | dict(node.kwargs)


def value(node: Any) -> Any:
    """What the compiler says a node will be: its type and shape, without numbers."""
    return node.meta.get("example_value") if isinstance(node, fx.Node) else None


def shape_of(node: Any) -> tuple[str, ...] | None:
    """As text: sizes may be symbols, which are not to be compared by value here."""
    shape = getattr(value(node), "shape", None)
    return None if shape is None else tuple(map(str, shape))


def only_user(node: fx.Node) -> fx.Node | None:
    return next(iter(node.users)) if len(node.users) == 1 else None


def addition(node: fx.Node) -> bool:
    """Whether a node is a sum of two, which a sum elsewhere may stand for: none that somebody sees happen in place."""
    if node.target not in ADDITIONS or len(node.args) != 2 or node.kwargs:
        return False
    changed = node.args[0]
    if node.target is not operator.iadd or not isinstance(changed, fx.Node):
        return True
    return changed.op != "placeholder" and all(user is node or user < node for user in changed.users)


def replace(node: fx.Node, fused: fx.Node) -> None:
    """Whoever used the node uses the other one, which is the same to them."""
    fused.meta["example_value"] = value(node)
    node.replace_all_uses_with(fused)


def erase(graph: fx.Graph, nodes: Iterable[fx.Node | None]) -> None:
    """From the last to the first: whatever nobody needs any more."""
    for node in dict.fromkeys(nodes):
        if node is not None and not node.users:
            graph.erase_node(node)
