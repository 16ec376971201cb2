"""Splits made here, for data that come without them."""

from __future__ import annotations

import torch
from torch import Tensor

from onefold.data.order import generator_for


def hold_out(labels: Tensor, fraction: float, seed: int, purpose: str) -> tuple[Tensor, Tensor]:
    """Indices that stay and indices held out: `fraction` of each class, drawn from the seed, both in order.

    Of a class with two examples or more at least one is held out and one stays; a single one stays.
    """
    if not 0 < fraction < 1:
        raise ValueError(f"{purpose}_fraction: expected a value between 0 and 1, got {fraction}")
    held = torch.zeros(len(labels), dtype=torch.bool)
    for label in labels.unique().tolist():
        members = (labels == label).nonzero().flatten()
        count = min(max(round(fraction * len(members)), 1), len(members) - 1)
        shuffled = members[torch.randperm(len(members), generator=generator_for(purpose, seed, label))]
        held[shuffled[:count]] = True
    if not held.any():
        raise ValueError(f"{purpose}: expected a class with two examples or more, to hold one out, got none")
    return (~held).nonzero().flatten(), held.nonzero().flatten()


def hold_out_last(labels: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Indices that stay and indices held out: the last `count` of each class."""
    held = torch.zeros(len(labels), dtype=torch.bool)
    for label in labels.unique().tolist():
        held[(labels == label).nonzero().flatten()[-count:]] = True
    return (~held).nonzero().flatten(), held.nonzero().flatten()
