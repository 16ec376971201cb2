"""How much the members of an ensemble disagree."""

from __future__ import annotations

import torch
from torch import Tensor

from onefold.metrics.accumulator import Accumulator
from onefold.types import at_least_float32, check_logits


def diversity(logits: Tensor) -> Tensor:
    """The paper's Div for logits `[M, B, K]`, for each example `[B]`, at temperature 1:

        Div(x) = sum_ij KL(p_i || p_j) / (M (M - 1)) = sum_i p_i . (log p_i - mean_j log p_j) / (M - 1)

    The right-hand side costs M K instead of M^2 K. Differentiable, never negative, and exactly zero where the
    members agree.
    """
    check_logits("logits", logits)
    members = logits.shape[0]
    if members < 2:
        raise ValueError(f"logits: expected [M, B, K] with two members or more to compare, got M = {members}")
    log_p = torch.log_softmax(at_least_float32(logits), dim=-1)
    # Subtract the first member before the mean: the mean of equal numbers may round, but the mean of zeros is zero.
    centred = log_p - log_p[:1]
    centred = centred - centred.mean(dim=0)
    # For nearly equal members, rounding may leave the result slightly negative.
    return ((log_p.exp() * centred).sum(dim=(0, 2)) / (members - 1)).clamp_min(0)


class DiversityMeter(Accumulator):
    """Mean diversity over a stream of batches: TDiv for teachers, SDiv for a student."""

    def __init__(self, device: torch.device | str | None = None) -> None:
        super().__init__({"totals": (3,)}, device)  # examples, diversity, examples with non-finite logits

    @torch.no_grad()
    def update(self, logits: Tensor) -> None:
        """Adds logits `[M, B, K]` without a device sync."""
        self._follow(logits)
        values = diversity(logits)
        finite = logits.isfinite().all(dim=-1).all(dim=0)
        rows = torch.stack([torch.ones_like(values), values, (~finite).to(values.dtype)], dim=-1)
        self._sums["totals"] += rows.to(self._sums["totals"].dtype).sum(dim=0)

    def compute(self) -> dict[str, float]:
        """The mean `diversity` over `count` examples."""
        count, total, broken = self._sums["totals"].tolist()
        if not count:
            raise ValueError("no examples: expected at least one update before compute")
        if broken:
            raise ValueError(f"logits: expected finite logits, got {broken:.0f} of {count:.0f} examples that are not")
        return {"diversity": total / count, "count": count}
