"""A random sample of a split, by a seed, for measurements that would take too long on all of it."""

from __future__ import annotations

from collections.abc import Sized
from typing import Any, cast

import torch
from torch.utils.data import DataLoader, Subset

from onefold.data.order import generator_for
from onefold.data.pictures import Pictures
from onefold.data.split import Arrays, Split


def sample(split: Split, count: int, seed: int = 0) -> Split | None:
    """At most `count` examples in random order, so that every batch of them is mixed.

    None for a `DataLoader`: reading from a user's loader would advance the random numbers that it draws from.
    """
    if isinstance(split, DataLoader):
        return None
    total = len(cast(Sized, split))
    chosen = torch.randperm(total, generator=generator_for("sample", seed))[:count]
    if isinstance(split, Arrays | Pictures):
        return split.take(chosen)
    return Sampled(split, chosen.tolist())


class Sampled(Subset[Any]):
    """Some examples of a data set, which are told by their place there."""

    def where(self, index: int) -> str:
        where = getattr(self.dataset, "where", "example {}".format)
        return str(where(self.indices[index]))
