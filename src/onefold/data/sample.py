"""Some examples of a split, drawn by a seed: what a measurement looks at where all would take too long."""

from __future__ import annotations

from collections.abc import Sized
from typing import cast

import torch
from torch.utils.data import DataLoader, Subset

from onefold.data.order import generator_for
from onefold.data.pictures import Pictures
from onefold.data.split import Arrays, Split


def sample(split: Split, count: int, seed: int = 0) -> Split | None:
    """At most `count` examples in an order drawn from the seed, so that every batch of them is a mixture.

    None for a `DataLoader`: asking a user's loader for examples would move on the random numbers it draws from.
    """
    if isinstance(split, DataLoader):
        return None
    total = len(cast(Sized, split))
    chosen = torch.randperm(total, generator=generator_for("sample", seed))[:count]
    if isinstance(split, Arrays | Pictures):
        return split.take(chosen)
    return Subset(split, chosen.tolist())
