"""The distribution of predictive entropies, accumulated over batches in fixed memory."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from onefold.metrics.accumulator import Accumulator

BINS = 50


class EntropyHistogram(Accumulator):
    """Counts of entropies in bins of equal width from 0 to log K, so that any two networks can be compared.

    Bins are [l, u), the last one [l, log K]; values that rounding puts outside are counted in the nearest bin.
    """

    def __init__(self, classes: int, bins: int = BINS, device: torch.device | str | None = None) -> None:
        if classes < 2:
            raise ValueError(f"classes: expected at least 2, got {classes}")
        if bins < 1:
            raise ValueError(f"bins: expected at least 1, got {bins}")
        self.classes, self.bins = classes, bins
        super().__init__({"counts": (bins,), "totals": (2,)}, device)  # totals: entropy, number of non-finite ones

    @property
    def edges(self) -> list[float]:
        """The bin edges, from 0 to log K, `[bins + 1]`."""
        return [math.log(self.classes) * place / self.bins for place in range(self.bins + 1)]

    @torch.no_grad()
    def update(self, entropy: Tensor) -> None:
        """Adds entropies `[B]` in nats without a device sync."""
        self._follow(entropy)
        finite = entropy.isfinite()
        entropy = torch.where(finite, entropy, 0.0).to(self._sums["counts"].dtype)
        inner = torch.tensor(self.edges[1:-1], dtype=entropy.dtype, device=entropy.device)
        place = torch.bucketize(entropy, inner, right=True)
        self._sums["counts"].index_add_(0, place, finite.to(entropy.dtype))
        self._sums["totals"] += torch.stack([entropy.sum(), (~finite).sum().to(entropy.dtype)])

    def counts(self) -> list[int]:
        """How many entropies are in each bin; synchronizes with the device."""
        if broken := int(self._sums["totals"][1].item()):
            raise ValueError(f"entropy: expected finite entropies, got {broken} that are not; look at the network")
        return [round(count) for count in self._sums["counts"].tolist()]

    def compute(self) -> dict[str, float]:
        """The mean `entropy` over `count` examples."""
        count = sum(self.counts())
        if not count:
            raise ValueError("no examples: expected at least one update before compute")
        return {"entropy": float(self._sums["totals"][0]) / count, "count": float(count)}
