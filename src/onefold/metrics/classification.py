"""Accuracy, likelihood and calibration of a classifier, accumulated over batches in fixed memory."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from onefold.metrics.accumulator import Accumulator
from onefold.metrics.bins import equal_mass_error, equal_width_bins
from onefold.metrics.cells import magnitude_cells
from onefold.metrics.ensemble import log_mean_probabilities, predictive_entropy
from onefold.types import check_labels, check_logits, check_two

# 1 - confidence is resolved to 12 bits of its mantissa, down to below the spacing of float32 just under one.
_LOWEST, _OCTAVES, _BITS = -25, 25, 12


@dataclass(frozen=True)
class Reliability:
    """The bins of a reliability diagram `[bins]`, lowest first, on the CPU; the means of an empty bin are NaN."""

    count: Tensor
    confidence: Tensor
    accuracy: Tensor


def as_members(logits: Tensor) -> Tensor:
    """Logits `[B, K]` or `[M, B, K]` as `[M, B, K]`."""
    if logits.dim() not in (2, 3):
        raise ValueError(f"logits: expected [B, K] or [M, B, K], got shape {list(logits.shape)}")
    return logits if logits.dim() == 3 else logits[None]


class Classification(Accumulator):
    """Metrics of predictions p `[B, K]`, accumulated in float64 on the device of the batches.

        acc      mean of [y = argmax_k p_k], from 0 to 1
        nll      mean of - log p_y
        ece      sum_l n_l / N |accuracy_l - confidence_l|, confidence max_k p_k, bins ((l - 1) / L, l / L]
        ace      the same over L bins of N / L examples each (adaptive ECE)
        cwece    mean over the classes k of the ECE of p_k against [y = k], same bins (class-wise ECE)
        brier    mean of sum_k (p_k - [y = k])^2, from 0 to 2
        entropy  mean of - sum_k p_k log p_k, in nats

    `ace` is computed from groups of confidences whose 1 - confidence has the same leading bits. It differs from
    `adaptive_ece` only by the order within a group that straddles a boundary between bins: by at most n / 2N for
    each boundary, where n is the number of examples in that group, and not at all if they share one confidence.
    """

    def __init__(self, classes: int, bins: int = 15, device: torch.device | str | None = None) -> None:
        check_two("classes", classes)
        if bins < 1:
            raise ValueError(f"bins: expected at least 1, got {bins}")
        self.classes, self.bins = classes, bins
        shapes = {
            "totals": (7,),  # examples, correct, nll, brier, entropy, non-finite logits, labels out of range
            "bins": (bins, 3),  # by confidence: examples, confidence, correct
            "cells": (_OCTAVES << _BITS, 2),  # by 1 - confidence: examples, confidence - correct
            "classwise": (classes, bins),  # p_k - [y = k]
        }
        super().__init__(shapes, device)

    @torch.no_grad()
    def update(self, logits: Tensor, labels: Tensor) -> None:
        """Adds logits or log-probabilities `[B, K]`, or those of members `[M, B, K]`, and labels `[B]`.

        Members predict by their mean probabilities. There is no device sync: invalid values on a device are counted,
        and `compute` refuses them.
        """
        logits = as_members(logits)
        check_logits("logits", logits)
        if logits.shape[-1] != self.classes:
            raise ValueError(f"logits: expected {self.classes} classes, got {logits.shape[-1]}")
        check_labels(labels, self.classes, logits.shape[1])
        self._follow(logits)
        labels = labels.to(logits.device, torch.long)

        finite = logits.isfinite().all(dim=-1).all(dim=0)
        in_range = (labels >= 0) & (labels < self.classes)
        # Replace invalid values: an index out of range would kill the CUDA context.
        logits = torch.where(finite[:, None], logits, 0.0)
        labels = labels.clamp(0, self.classes - 1)

        log_p = log_mean_probabilities(logits)
        predicted = (logits[0] if logits.shape[0] == 1 else log_p).argmax(dim=-1)
        self._add(log_p, labels, predicted == labels, ~finite, ~in_range)

    def _add(self, log_p: Tensor, labels: Tensor, correct: Tensor, broken: Tensor, misplaced: Tensor) -> None:
        sums, dtype = self._sums, self._sums["totals"].dtype
        p = log_p.exp()
        confidence = p.amax(dim=-1)
        row = labels[:, None]  # [B, 1]
        nll = -log_p.gather(1, row)[:, 0]
        brier = p.to(dtype).scatter_add(1, row, -torch.ones_like(row, dtype=dtype)).square().sum(dim=-1)
        ones = torch.ones_like(nll)
        totals = [ones, correct, nll, brier, predictive_entropy(log_p), broken, misplaced]
        sums["totals"] += torch.stack([t.to(dtype) for t in totals], dim=-1).sum(dim=0)

        examples, hits, sure = ones.to(dtype), correct.to(dtype), confidence.to(dtype)
        bin_ = equal_width_bins(confidence, self.bins)
        sums["bins"].index_add_(0, bin_, torch.stack([examples, sure, hits], dim=-1))
        # 1 - confidence is exact for confidences of one half or more.
        cell = magnitude_cells(1 - confidence, lowest=_LOWEST, octaves=_OCTAVES, bits=_BITS)
        sums["cells"].index_add_(0, cell, torch.stack([examples, sure - hits], dim=-1))

        first = torch.arange(self.classes, device=p.device) * self.bins
        place = first + equal_width_bins(p, self.bins)  # [B, K]
        classwise = sums["classwise"].view(-1)
        classwise.index_add_(0, place.flatten(), p.to(dtype).flatten())
        classwise.index_add_(0, place.gather(1, row)[:, 0], -examples)

    def compute(self) -> dict[str, float]:
        """Every metric above and the `count` of examples; synchronizes with the device."""
        count, correct, nll, brier, entropy = self._checked_totals()
        _, confidence, hits = self._sums["bins"].cpu().double().unbind(dim=-1)
        mass, gap = self._sums["cells"].cpu().double().numpy().T  # in descending order of confidence
        return {
            "acc": correct / count,
            "nll": nll / count,
            "ece": float((hits - confidence).abs().sum()) / count,
            "ace": equal_mass_error(mass, gap, self.bins),
            "cwece": float(self._sums["classwise"].abs().sum()) / count / self.classes,
            "brier": brier / count,
            "entropy": entropy / count,
            "count": count,
        }

    def reliability(self) -> Reliability:
        """The number of examples, mean confidence and accuracy in each bin of `ece`."""
        self._checked_totals()
        examples, confidence, hits = self._sums["bins"].cpu().double().unbind(dim=-1)
        return Reliability(examples.round().long(), confidence / examples, hits / examples)

    def _checked_totals(self) -> list[float]:
        totals: list[float] = self._sums["totals"].tolist()
        count, broken, misplaced = (int(totals[i]) for i in (0, 5, 6))
        if not count:
            raise ValueError("no examples: expected at least one update before compute")
        if broken:
            raise ValueError(
                f"logits: expected finite logits, got {broken} of {count} examples that are not; "
                "check whether a network has diverged"
            )
        if misplaced:
            raise ValueError(f"labels: expected classes 0 to {self.classes - 1}, got {misplaced} of {count} outside")
        return totals[:5]
