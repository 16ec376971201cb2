"""The arguments that a user's network is made with: those of its parameters that are filled in."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from onefold.engine.device import seeded
from onefold.models import ChannelStatistics
from onefold.types import logits_in

if TYPE_CHECKING:
    from onefold.engine.networks.own_network import Own

COUNTS = ("classes", "num_classes")
GIVEN = (*COUNTS, "channels", "in_channels", "in_chans", "statistics")  # parameters that are filled in

Moments = Sequence[Sequence[float]]  # mean and standard deviation of each channel or feature


def wanted_by(make: Callable[..., object], name: str) -> tuple[str, ...]:
    """Which of `GIVEN` its parameters name; refuses required parameters that cannot be filled in."""
    if of_timm(make):
        return ("num_classes", "in_chans")
    parameters = parameters_of(make)
    named = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    filled = [n for n in GIVEN if n in named]
    open_ = [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    lacking = [n for n in open_ if n not in filled]
    if lacking:
        raise ValueError(
            f"network: '{name}' needs {', '.join(lacking)}, but only {', '.join(GIVEN)} are filled in; give "
            f"{'it a default' if len(lacking) == 1 else 'them defaults'}, or name a function that does"
        )
    return tuple(filled)


def parameters_of(make: Callable[..., object]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(make).parameters.values())
    except (TypeError, ValueError):  # has no signature, since it is not written in Python
        return []


def of_timm(make: Callable[..., object]) -> bool:
    """Whether timm makes the network, by a function that passes all but a few of its arguments on."""
    function = make.func if isinstance(make, functools.partial) else make
    if not str(getattr(function, "__module__", "")).startswith("timm."):
        return False
    timm: Any = sys.modules["timm"]
    return function is timm.create_model or bool(timm.is_model(getattr(function, "__name__", "")))


def own_arguments(own: Own, classes: int, moments: Moments, size: Sequence[int] | None) -> dict[str, Any]:
    """The arguments a network is made with. A function that passes keywords on, as torchvision's do, gets `num_classes`
    if its network would otherwise be for another number; that is tried if the `size` of the inputs is known."""
    mean, std = (tuple(values) for values in moments)
    given: dict[str, Any] = dict.fromkeys(COUNTS, classes)
    given |= dict.fromkeys(("channels", "in_channels", "in_chans"), len(mean))
    given |= {"statistics": ChannelStatistics(mean, std)}
    given = {name: given[name] for name in own.wanted}
    passes_on = any(p.kind is p.VAR_KEYWORD for p in parameters_of(own.make))
    if size is None or not passes_on or set(COUNTS) & set(own.wanted):
        return given
    counted = given | {"num_classes": classes}
    if needs_count(own.make, tuple(given.items()), tuple(counted.items()), classes, (mean, std), tuple(size)):
        return counted
    return given


@functools.cache
def needs_count(
    make: Callable[..., Any],
    given: tuple[tuple[str, Any], ...],
    counted: tuple[tuple[str, Any], ...],
    classes: int,
    moments: tuple[tuple[float, ...], ...],
    size: tuple[int, ...],
) -> bool:
    """Whether only the network made with `counted` has a logit for each class. Errors are left for when it is made."""
    x = example_of(moments, size)
    with seeded(torch.device("cpu"), 0), torch.no_grad():
        try:
            return logits_of(make(**dict(given)), x) != classes and logits_of(make(**dict(counted)), x) == classes
        except (Exception, SystemExit):
            return False


def logits_of(net: nn.Module, x: Tensor) -> int | None:
    """How many logits a network gives for an example; None if its output is not one row of them for each."""
    logits = logits_in(net.eval()(x))
    return int(logits.shape[1]) if isinstance(logits, Tensor) and logits.dim() == 2 else None


def example_of(moments: Moments, size: Sequence[int]) -> Tensor:
    """Example inputs, all 0.5: images `[2, C, H, W]`, or features."""
    return torch.full((2, len(moments[0]), *size) if len(size) == 2 else (2, *size), 0.5)
