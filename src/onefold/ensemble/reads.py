"""Finds modules whose code reads a child layer's weight instead of calling the layer.

Such code would bypass the factors. The bytecode of everything reachable from `forward` is searched for
`child.weight`; reading only the weight's dtype or shape is harmless.
"""

from __future__ import annotations

import dis
import inspect
import types
from collections.abc import Iterator
from typing import NamedTuple

from torch import nn

WEIGHTS = {"weight", "in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"}
HARMLESS = {
    *(
        "dtype",
        "device",
        "shape",
        "size",
        "ndim",
        "dim",
        "numel",
        "requires_grad",
        "is_cuda",
        "type",
        "get_device",
    ),
    *("is_floating_point", "element_size", "layout", "is_meta"),
}


class Reads(NamedTuple):
    """Names of layers whose weight is read, and whether some read could not be traced to a layer's name."""

    names: frozenset[str]
    untraced: bool


def weight_reads(module: nn.Module, known: dict[object, Reads]) -> Reads:
    """Which weights of its child layers this module's code reads; `known` caches the result per class."""
    own = module.__dict__.get("forward")  # an instance may override forward
    key = (type(module), own.__func__ if isinstance(own, types.MethodType) else own)
    if key not in known:
        known[key] = search(*key)
    return known[key]


def search(cls: type[nn.Module], own_forward: object) -> Reads:
    names: set[str] = set()
    untraced = False
    for function, is_method in _reachable(cls, own_forward):
        itself = function.__code__.co_varnames[:1] if is_method else ()
        for code in _nested(function.__code__):
            untraced |= any(constant in WEIGHTS for constant in code.co_consts if isinstance(constant, str))
            instructions = list(dis.get_instructions(code))
            for before, here, after in zip(
                [None, *instructions], instructions, [*instructions[1:], None], strict=False
            ):
                if here.opname not in ("LOAD_ATTR", "LOAD_METHOD") or here.argval not in WEIGHTS:
                    continue
                if after is not None and after.opname in ("LOAD_ATTR", "LOAD_METHOD") and after.argval in HARMLESS:
                    continue
                if before is not None and before.opname == "LOAD_ATTR":
                    names.add(str(before.argval))
                elif before is None or (before.argval,) != itself:  # `self.weight` is the module's own
                    untraced = True
    return Reads(frozenset(names), untraced)


def _reachable(cls: type[nn.Module], own_forward: object) -> Iterator[tuple[types.FunctionType, bool]]:
    """Functions that `forward` may call, and whether each is a method: methods of the class, matched by name, and
    global functions of the Python module each is defined in."""
    start = [own_forward] if own_forward is not None else _definitions(cls, "forward")
    stack = [(f, True) for f in map(_plain, start) if f is not None]
    seen = {f for f, _ in stack}
    while stack:
        function, is_method = stack.pop()
        if (function.__module__ or "").startswith("torch."):
            continue  # torch's own layers are handled by kind, and its functions take weights as arguments
        yield function, is_method
        for name in {name for code in _nested(function.__code__) for name in code.co_names}:
            methods = {_plain(f) for f in _definitions(cls, name)}
            for found in methods | {_plain(function.__globals__.get(name))}:
                if found is not None and found not in seen:
                    seen.add(found)
                    stack.append((found, found in methods))


def _definitions(cls: type, name: str) -> list[object]:
    """Every definition of a method along the MRO, so that `super().forward` is followed too."""
    return [base.__dict__[name] for base in cls.__mro__ if base is not nn.Module and name in base.__dict__]


def _plain(function: object) -> types.FunctionType | None:
    if isinstance(function, property):
        function = function.fget
    if isinstance(function, (staticmethod, classmethod)):
        function = function.__func__
    if not callable(function) or isinstance(function, type):
        return None
    function = inspect.unwrap(function)
    return function if isinstance(function, types.FunctionType) else None


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _nested(constant)
