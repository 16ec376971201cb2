"""Runs something with contiguous tensors and in channels-last, to see whether it depends on the memory format."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import torch
from torch import Tensor

from onefold.engine.alike import Gradients
from onefold.engine.blame import told
from onefold.engine.device import seeded
from onefold.engine.in_order import InOrder
from onefold.fast.tf32 import tf32

JITTER = 1e-6  # relative change of inputs, which changes no more than another order of summation
REFUSED = "{} cannot use the channels-last memory format, which would be faster: {}"
NO_ROOM = "the channels-last memory format, which may be faster, is not used: there is not enough memory to try it"

T = TypeVar("T")
Compute = Callable[[Tensor, torch.memory_format], Gradients]  # tensors by name, from inputs
Alike = Callable[[Gradients, Gradients], bool]


class FailsAnyway(Exception):
    """What was tried fails with contiguous tensors, too."""


def first_refusal(trials: Iterable[tuple[str, Callable[[], str]]]) -> tuple[bool, str]:
    """Whether any trial refuses channels-last, and a sentence that says why, if there is something to say."""
    for who, trial in trials:
        try:
            reason = trial()
        except FailsAnyway:
            return True, ""  # training itself will say why
        except torch.OutOfMemoryError:
            return True, NO_ROOM
        if reason:
            return True, REFUSED.format(who, reason)
    return False, ""


def difference(compute: Compute, x: Tensor, alike: Alike, what: str = "outputs") -> str:
    """What is wrong with the results in channels-last; empty if they are like those of contiguous tensors."""
    expected, reason = attempted(lambda: seeing(compute, x, torch.contiguous_format))
    if expected is None:
        raise FailsAnyway(reason)
    same, reason = attempted(lambda: alike(seeing(compute, x, torch.channels_last), expected))
    if same or (not reason and for_another_reason(compute, x, alike)):
        return ""
    return reason or f"its {what} differ"


def for_another_reason(compute: Compute, x: Tensor, alike: Alike) -> bool:
    """Whether results differ only because random maps are drawn in the order of the memory, or are such that nothing
    can be compared: not reproducible even with contiguous tensors, or other ones after a change in the last digits."""

    def compare() -> bool:
        with InOrder():
            expected = seeing(compute, x, torch.contiguous_format)
            if alike(seeing(compute, x, torch.channels_last), expected):
                return True
            return not alike(seeing(compute, jittered(x), torch.contiguous_format), expected)

    return bool(attempted(compare)[0])  # some code cannot be looked into


def failure(take: Callable[[torch.memory_format], object], device: torch.device) -> str:
    """Why a step fails in channels-last; empty if it runs."""
    with seeded(device, 0):
        _, reason = attempted(lambda: take(torch.channels_last))
        if reason and attempted(lambda: take(torch.contiguous_format))[1]:
            raise FailsAnyway(reason)
    return reason


def attempted(work: Callable[[], T]) -> tuple[T | None, str]:
    """The result, or None and why it failed: code that depends on the memory format may raise anything. Running out of
    memory is no such reason."""
    try:
        return work(), ""
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        return None, told(error)


def seeing(compute: Compute, x: Tensor, layout: torch.memory_format) -> Gradients:
    """The results in a layout. Random number generators start the same and are left as they were."""
    with seeded(x.device, 0), tf32(False):
        moved = layout is torch.channels_last and x.dim() == 4
        return compute(x.contiguous(memory_format=layout) if moved else x, layout)


def jittered(x: Tensor) -> Tensor:
    return x + JITTER * x.roll(1, -1) if x.is_floating_point() else x
