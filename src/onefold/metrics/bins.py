"""Calibration errors from bins: equal widths for ECE and its kin, equal masses for the adaptive one."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

FloatArray = npt.NDArray[np.float64]


def equal_width_bins(probability: Tensor, bins: int) -> Tensor:
    """The bin l of each probability, l / bins < p <= (l + 1) / bins; exactly 0 is in the first."""
    count = torch.full((), bins, dtype=probability.dtype, device=probability.device)
    # By a tensor, not a number: CUDA divides by a number through its rounded reciprocal.
    inner = torch.arange(1, bins, dtype=probability.dtype, device=probability.device) / count
    return torch.bucketize(probability.contiguous(), inner)  # warns of anything else


def equal_mass_error(mass: FloatArray, gap: FloatArray, bins: int) -> float:
    """Sum over bins of |gap| / total mass, for groups in order of confidence, either way, and bins of equal mass.

    `mass` is the number of examples of each group and `gap` its sum of (confidence - correct). A group that a
    border of two bins falls into is split in proportion.
    """
    total = mass.sum()
    borders = np.arange(bins + 1) * (total / bins)
    mass_so_far = np.concatenate([[0.0], np.cumsum(mass)])
    gap_so_far = np.concatenate([[0.0], np.cumsum(gap)])
    return float(np.abs(np.diff(np.interp(borders, mass_so_far, gap_so_far))).sum() / total)


def adaptive_ece(confidence: Tensor, correct: Tensor, bins: int = 15) -> float:
    """ECE over bins of N / bins examples each in order of confidence, of confidences `[N]` and hits `[N]`.

    Examples of equal confidence are one group, split in proportion where a border falls into it, so that the
    result does not depend on their order; a single example on a border counts in both bins by its parts.
    """
    if confidence.dim() != 1 or confidence.shape != correct.shape or not confidence.numel():
        raise ValueError(
            "confidence, correct: expected two tensors [N] with N of at least one, "
            f"got {list(confidence.shape)} and {list(correct.shape)}"
        )
    if bins < 1:
        raise ValueError(f"bins: expected at least 1, got {bins}")
    values = confidence.detach().cpu().double().numpy()
    hits = correct.detach().cpu().double().numpy()
    _, group, mass = np.unique(values, return_inverse=True, return_counts=True)
    gap: FloatArray = np.bincount(group, weights=values - hits).astype(np.float64)
    return equal_mass_error(mass.astype(np.float64), gap, bins)
