"""Helpers for reading and changing a network's graph as traced by torch's compiler: a sequence of torch calls."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from inspect import signature
from types import FunctionType
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx

ADDITIONS = (operator.add, operator.iadd, torch.add)
RELUS = (F.relu, torch.relu, F.relu_, torch.relu_)
IN_PLACE = tuple(getattr(operator, f"i{name}") for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"))
IN_PLACE += (operator.iand, operator.ior, operator.ixor, operator.setitem)


def calls(graph: fx.Graph, *targets: Any) -> Iterator[fx.Node]:
    yield from [node for node in graph.nodes if node.op == "call_function" and node.target in targets]


def norm_arguments(node: fx.Node) -> dict[str, Any]:
    """The arguments of a batch_norm by name."""
    names = ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")
    defaults = {"weight": None, "bias": None, "training": False, "momentum": 0.1, "eps": 1e-5}
    return defaults | dict(zip(names, node.args, strict=False)) | dict(node.kwargs)


def convolution_arguments(node: fx.Node) -> dict[str, Any]:
    names = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
    defaults = {"bias": None, "stride": 1, "padding": 0, "dilation": 1, "groups": 1}
    return defaults | dict(zip(names, node.args, strict=False)) | dict(node.kwargs)


def value(node: Any) -> Any:
    """The compiler's example value of a node: a fake tensor with its type and shape, or None."""
    return node.meta.get("example_value") if isinstance(node, fx.Node) else None


def shape_of(node: Any) -> tuple[str, ...] | None:
    """The shape as text: sizes may be symbolic, and comparing those would add guards."""
    shape = getattr(value(node), "shape", None)
    return None if shape is None else tuple(map(str, shape))


def type_of(node: Any) -> torch.dtype | None:
    return getattr(value(node), "dtype", None)


def only_user(node: fx.Node) -> fx.Node | None:
    return next(iter(node.users)) if len(node.users) == 1 else None


def activation_after(node: fx.Node) -> fx.Node | None:
    """The ReLU that is the node's only user, or None."""
    user = only_user(node)
    if user is None or user.target in RELUS or (user.op == "call_method" and user.target in ("relu", "relu_")):
        return user
    return None


def addition(node: fx.Node) -> bool:
    """Whether a node is a sum of two that may be computed elsewhere instead: not one in place that others can see."""
    if node.target not in ADDITIONS or len(node.args) != 2 or node.kwargs:
        return False
    changed = node.args[0]
    if node.target is not operator.iadd or not isinstance(changed, fx.Node):
        return True
    return all(n.op != "placeholder" and all(user <= node for user in n.users) for n in aliases(changed, node))


def aliases(node: fx.Node, before: fx.Node) -> Iterator[fx.Node]:
    """The node and others before `before` that share its memory: its views, and what it is a view of."""
    mine = memory(node)
    for other in node.graph.nodes:
        if other is before:
            return
        if other is node or (mine is not None and memory(other) == mine):
            yield other


def memory(node: Any) -> int | None:
    """An identifier of the storage a node's tensor is in."""
    known = value(node)
    return known.untyped_storage()._cdata if isinstance(known, torch.Tensor) else None


def changed_between(tensors: Iterable[Any], first: fx.Node, last: fx.Node) -> bool:
    """Whether anything writes into one of the tensors after the first node and before the last.

    If so, what the first node computes cannot be moved to the last.
    """
    kept = {memory(t) for t in tensors} - {None}
    node = first.next
    while node is not last:
        if any(memory(t) in kept for t in written(node)):
            return True
        node = node.next
    return False


def written(node: fx.Node) -> list[Any]:
    """The tensors a node changes in place."""
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    in_place = name.endswith("_") and not name.endswith("__")
    in_place = in_place or name == "__setitem__" or node.target in IN_PLACE or asked_in_place(node)
    first = node.args[0] if in_place and node.args else node.kwargs.get("input") if in_place else None
    return [*(first if isinstance(first, (list, tuple)) else [first]), node.kwargs.get("out")]


def asked_in_place(node: fx.Node) -> bool:
    """Whether a function with an `inplace` argument (activations, dropout) is called in place."""
    if not isinstance(node.target, FunctionType):
        return False
    try:
        given = signature(node.target).bind(*node.args, **node.kwargs).arguments
    except (TypeError, ValueError):  # its signature is unknown: assume that it may write
        return True
    return given.get("inplace") is True


def replace(node: fx.Node, fused: fx.Node) -> None:
    """Makes all users of the node use the fused node, whose value is the same."""
    fused.meta["example_value"] = value(node)
    node.replace_all_uses_with(fused)


def erase(graph: fx.Graph, nodes: Iterable[fx.Node | None]) -> None:
    """Erases those of the nodes, given from last to first, that have no users left."""
    for node in dict.fromkeys(nodes):
        if node is not None and not node.users:
            graph.erase_node(node)
