"""Fingerprints of what a script passes to a run, by which a run folder recognises that something has changed.

A fingerprint starts with the version of what made it (Python's byte code, torch's descriptions of layers) and a colon:
fingerprints of different versions cannot be compared.
"""

from __future__ import annotations

import functools
import hashlib
import platform
import re
from collections.abc import Callable, Mapping, Sequence, Set
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

T = TypeVar("T")
DEEPEST = 8  # levels of functions that use functions, and of nested containers
MOST = 256  # items of a container that are looked at
PLAIN = (int, float, complex, str, bytes, type(None))


def of_network(net: nn.Module) -> str:
    """The layers by name, class and settings; not the weights, which a script may draw anew each time."""
    layers = [f"{name} {type(m).__qualname__} {m.extra_repr()}" for name, m in net.named_modules()]
    layers = [re.sub(r" at 0x[0-9a-f]+", "", layer) for layer in layers]  # addresses change from process to process
    return f"torch {'.'.join(torch.__version__.split('.')[:2])}:{hashed(layers)}"


def of_function(*functions: object) -> str:
    """The code of functions and the values they use: defaults, closures, and globals of their own file."""
    return f"Python {'.'.join(platform.python_version_tuple()[:2])}:{hashed([described(f) for f in functions])}"


def of_schedule(scheduler: object) -> str:
    """A torch scheduler's class and settings, before its first step."""
    return f"torch {'.'.join(torch.__version__.split('.')[:2])}:{hashed([described(scheduler)])}"


def hashed(lines: Sequence[str]) -> str:
    return hashlib.blake2b("\n".join(lines).encode(), digest_size=16).hexdigest()


def described(value: object, depth: int = DEEPEST, seen: frozenset[int] = frozenset()) -> str:
    """A description that is the same in every process, and changes with whatever changes the value's behaviour. Code of
    installed packages is identified by name alone, and so are opaque objects."""
    if isinstance(value, PLAIN):
        return repr(value)
    if isinstance(value, Tensor | np.ndarray):
        return of_numbers(value)
    if isinstance(value, ModuleType):
        return value.__name__
    if isinstance(value, Optimizer) or depth == 0 or id(value) in seen:
        return named(type(value))
    within = functools.partial(described, depth=depth - 1, seen=seen | {id(value)})
    if isinstance(value, functools.partial):
        return f"partial {within(value.func)} {within(value.args)} {within(value.keywords)}"
    if isinstance(value, MethodType):
        return f"{within(value.__func__)} of {within(value.__self__)}"
    if isinstance(value, FunctionType) and not installed(value):
        return of_code(value, within)
    if isinstance(value, CodeType):
        return f"{value.co_code.hex()} {value.co_names} {[within(c) for c in value.co_consts]}"
    if isinstance(value, type) or (callable(value) and hasattr(value, "__qualname__")):
        return named(value)
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{within(k)}: {within(v)}' for k, v in some(list(value.items())))}}} of {len(value)}"
    if isinstance(value, Set):
        return f"{{{', '.join(sorted(map(within, value)))}}}"
    if isinstance(value, Sequence):
        return f"{named(type(value))} of {len(value)} [{', '.join(map(within, some(value)))}]"
    if isinstance(value, LRScheduler):
        return f"{named(type(value))} {within(schedule_settings(value))}"
    if isinstance(value, nn.Module):
        settings = {k: v for k, v in vars(value).items() if isinstance(v, PLAIN) and k != "training"}
        return f"{of_network(value)} {within(value.state_dict())} {within(settings)}"
    return f"{named(type(value))} {within(vars(value))}" if hasattr(value, "__dict__") else named(type(value))


def schedule_settings(scheduler: LRScheduler) -> dict[str, Any]:
    """The settings of a scheduler, its rates rounded to float32: on a GPU they are tensors of that."""
    rates = [float(np.float32(float(rate))) for rate in getattr(scheduler, "base_lrs", [])]
    kept = {name: value for name, value in vars(scheduler).items() if name not in ("base_lrs", "_last_lr")}
    return kept | {"rates": rates}


def of_code(function: FunctionType, within: Callable[[object], str]) -> str:
    """A function's code and the values it uses."""
    code = function.__code__
    constants = [within(c) for c in code.co_consts if c is None or c != function.__doc__]
    cells = [within(cell.cell_contents) for cell in function.__closure__ or () if filled(cell)]
    used = {name: function.__globals__[name] for name in code.co_names if name in function.__globals__}
    values = [within(v) for v in (function.__defaults__, function.__kwdefaults__, used)]
    return f"{code.co_code.hex()} {code.co_names} {constants} {cells} {values}"


def some(values: Sequence[T]) -> Sequence[T]:
    """Evenly spaced items of a long sequence, because all of them would take too long."""
    return values[:: -(-len(values) // MOST)] if len(values) > MOST else values


def filled(cell: Any) -> bool:
    """Whether a variable of an enclosing function has a value yet."""
    try:
        cell.cell_contents  # noqa: B018 -- raises if it is empty
    except ValueError:
        return False
    return True


def installed(function: FunctionType) -> bool:
    """Whether a function belongs to a package whose code the user does not edit."""
    within = function.__code__.co_filename
    return function.__module__.partition(".")[0] == "onefold" or "site-packages" in within or "dist-packages" in within


def named(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}"


def of_numbers(value: Tensor | np.ndarray[Any, Any]) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape} {hashlib.blake2b(value.tobytes(), digest_size=16).hexdigest()}"
    tensor = value.detach().cpu().contiguous()
    held = tensor.reshape(-1).view(torch.uint8).numpy().tobytes()
    return f"{tensor.dtype} {list(tensor.shape)} {hashlib.blake2b(held, digest_size=16).hexdigest()}"
