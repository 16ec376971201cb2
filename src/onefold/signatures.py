"""What functions of a user's own accept: their signatures decide which arguments they are given."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

from torch import nn


def signature_of(function: Callable[..., Any]) -> inspect.Signature | None:
    """The arguments a function or module takes; None for functions that are not written in Python and do not tell."""
    try:
        return inspect.signature(called(function))
    except (TypeError, ValueError):
        return None


def called(function: Callable[..., Any]) -> Callable[..., Any]:
    """The forward of a module, which tells its arguments, whereas any module may be called with anything."""
    if isinstance(function, functools.partial):
        return functools.partial(called(function.func), *function.args, **function.keywords)
    return function.forward if isinstance(function, nn.Module) else function


def taken(function: Callable[..., Any], names: Iterable[str]) -> list[str]:
    """Which of these arguments the function accepts by name; all of them if it has **kwargs."""
    signature = signature_of(function)
    parameters = {} if signature is None else signature.parameters
    every = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    return [name for name in names if every or name in parameters]


def check_function(what: str, function: object, given: tuple[str, ...], names: Iterable[str]) -> None:
    """Refuses what cannot be called with the arguments `given` and, by name, with those of `names` that it accepts."""
    wanted = f"{', '.join(given[:-1])} and {given[-1]}"
    if not callable(function):
        raise ValueError(f"{what}: expected a function of {wanted}, got {type(function).__name__}")
    signature = signature_of(function)
    if signature is None:
        return
    try:
        signature.bind(*given, **dict.fromkeys(taken(function, names)))
    except TypeError as error:
        got = ", ".join(signature.parameters)
        raise ValueError(f"{what}: expected a function of {wanted}, got {name_of(function)}({got}): {error}") from None


def name_of(function: Callable[..., Any]) -> str:
    inner = function.func if isinstance(function, functools.partial) else function
    return str(getattr(inner, "__name__", type(inner).__name__))
