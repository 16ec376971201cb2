"""Whether a captured step computes the gradients of the same step run kernel by kernel.

A kernel that a graph runs too early, or whose memory another one writes to, raises no error: the network only learns
less. So the first replay of each graph is compared with the step it was captured from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import nn

from onefold.engine.alike import ALIKE, STEADY, Gradients, finite, flat, likeness, lost_gradients

NUDGE = 2**-9  # relative change of weights that moves gradients about as much as rounding to bf16


class Expected(NamedTuple):
    """What the step leaves kernel by kernel, and what with nudged weights, which tells where rounding matters."""

    exact: Gradients
    nudged: Gradients


@torch.no_grad()
def left(parameters: Mapping[str, nn.Parameter]) -> Gradients:
    """A copy of the gradients that a step has left, in bf16, which is enough to compare them."""
    held = {name: p.grad for name, p in parameters.items()}
    return {name: flat(g.detach()).to(torch.bfloat16, copy=True) for name, g in held.items() if g is not None}


@torch.no_grad()
def nudge(parameters: Mapping[str, nn.Parameter]) -> None:
    """Changes every weight a little, the same way in every process."""
    for p in parameters.values():
        draws = torch.Generator(p.device).manual_seed(0)
        p.mul_(1 + NUDGE * torch.randn(p.shape, generator=draws, device=p.device))


def check_replay(found: Gradients, expected: Expected) -> None:
    """Raises ValueError if a replay's gradients are others than those of the step kernel by kernel."""
    exact, nudged = expected
    if exact.keys() != nudged.keys() or not (finite(exact) and finite(nudged)):
        return  # the step does not even agree with itself
    if found.keys() != exact.keys():
        raise ValueError("other parameters have gradients")
    if not exact:
        return
    if lost := lost_gradients(found, exact, nudged):
        raise ValueError(f"the gradient of {lost[0]} differs")
    if likeness(nudged, exact) >= STEADY and not likeness(found, exact) > ALIKE:
        raise ValueError("its gradients differ")
