"""Out-of-distribution detection from a score, accumulated over batches in fixed memory."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from onefold.metrics.accumulator import Accumulator
from onefold.metrics.cells import signed_cells
from onefold.types import readable

Counts = npt.NDArray[np.int64]


def _detection(inside: Counts, outside: Counts) -> dict[str, float]:
    """The metrics, from the number of examples at each distinct score in ascending order."""
    total_in, total_out = int(inside.sum()), int(outside.sum())
    if not total_in or not total_out:
        raise ValueError(
            f"scores: expected some inside and some outside the distribution, got {total_in} and {total_out}"
        )
    used = (inside + outside) > 0
    inside, outside = inside[used], outside[used]
    in_up, out_up = np.cumsum(inside), np.cumsum(outside)  # score <= this one
    in_down, out_down = total_in - in_up + inside, total_out - out_up + outside  # score >= this one
    below = (in_up - inside / 2) @ outside  # pairs in the right order, ties counting half
    accepting = int(np.argmax(20 * in_up >= 19 * total_in))  # the first threshold that accepts 95% of those inside
    return {
        "auroc": float(below / total_in / total_out),
        "aupr": float((outside / total_out) @ (out_down / (out_down + in_down))),
        "aupr_in": float((inside / total_in) @ (in_up / (in_up + out_up))),
        "fpr95": float(out_up[accepting] / total_out),
    }


def detection(score_in: Tensor, score_out: Tensor) -> dict[str, float]:
    """The exact metrics of `OutOfDistribution`, from all scores inside `[N]` and outside `[N']` the distribution."""
    _check_score("score_in", score_in)
    _check_score("score_out", score_out)
    inside, outside = (s.detach().cpu().double().numpy() for s in (score_in, score_out))
    values, rank = np.unique(np.concatenate([inside, outside]), return_inverse=True)
    if not np.isfinite(values).all():
        raise ValueError("score_in, score_out: expected finite scores, got NaN or infinite values")
    ranks = rank[: len(inside)], rank[len(inside) :]
    return _detection(*(np.bincount(r, minlength=len(values)) for r in ranks))


class OutOfDistribution(Accumulator):
    """How well a score detects inputs from another distribution; a higher score means more out of distribution.

        auroc    probability that an input outside scores higher than one inside, a tie counting half
        aupr     average precision, sum_n (R_n - R_n-1) P_n over falling thresholds, for those outside
        aupr_in  the same for those inside, over rising thresholds (scores negated)
        fpr95    share of those outside that are accepted at the lowest threshold (score <= t) that accepts
                 95% or more of those inside: inside is the positive class, as is usual in this field

    Scores that share sign, exponent and leading bits count as equal: with 2^18 cells, those within 0.05% of
    each other, and all those below 2^-32 or above 2^32 in magnitude. So the interesting end should be near zero: pass
    the predictive entropy or 1 - confidence rather than - confidence. `resolution` bounds the effect.
    """

    def __init__(self, cells: int = 2**18, device: torch.device | str | None = None) -> None:
        if not 2**7 <= cells <= 2**30 or cells & (cells - 1):
            raise ValueError(f"cells: expected a power of two from 2**7 to 2**30, got {cells}")
        self.cells = cells
        super().__init__({"in": (cells,), "out": (cells,), "broken": (1,)}, device)

    @torch.no_grad()
    def update(self, score: Tensor, out: bool) -> None:
        """Adds scores `[B]` of inputs that are all outside the distribution (`out`) or all inside it.

        There is no device sync: non-finite scores on a device are counted, and `compute` refuses them.
        """
        _check_score("score", score)
        self._follow(score)
        finite = score.isfinite()
        if readable(score) and not bool(finite.all()):
            raise ValueError(f"score: expected finite scores, got {int((~finite).sum())} that are not")
        counts = self._sums["out" if out else "in"]
        cell = signed_cells(torch.where(finite, score, 0.0), self.cells)
        counts.index_add_(0, cell, torch.ones_like(score, dtype=counts.dtype))
        self._sums["broken"] += (~finite).sum()

    def compute(self) -> dict[str, float]:
        """`auroc`, `aupr`, `aupr_in` and `fpr95`; synchronizes with the device."""
        return _detection(*self._counts())

    def resolution(self) -> float:
        """A bound on the error of `auroc` caused by the cells: half the share of pairs that fall into the same cell."""
        inside, outside = self._counts()
        return float((inside / max(1, inside.sum())) @ (outside / max(1, outside.sum())) / 2)

    def _counts(self) -> tuple[Counts, Counts]:
        if broken := int(self._sums["broken"].item()):
            raise ValueError(f"score: expected finite scores, got {broken} that are not")
        inside, outside = (self._sums[name].cpu().round().long().numpy() for name in ("in", "out"))
        return inside, outside


def _check_score(name: str, score: Tensor) -> None:
    if not score.is_floating_point() or score.dim() != 1:
        raise ValueError(f"{name}: expected floating-point scores [B], got {score.dtype} of shape {list(score.shape)}")
