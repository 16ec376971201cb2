"""Calibration errors from bins: of equal width for ECE and the like, of equal mass for adaptive ECE."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

FloatArray = npt.NDArray[np.float64]


def equal_width_bins(probability: Tensor, bins: int) -> Tensor:
    """The bin l of each probability, l / bins < p <= (l + 1) / bins; exactly 0 falls in the first."""
    count = torch.full((), bins, dtype=probability.dtype, device=probability.device)
    # Divide by a tensor, not a Python number: for a number CUDA multiplies by its rounded reciprocal.
    inner = torch.arange(1, bins, dtype=probability.dtype, device=probability.device) / count
    return torch.bucketize(probability.contiguous(), inner)  # bucketize warns about non-contiguous input


def equal_mass_error(mass: FloatArray, gap: FloatArray, bins: int) -> float:
    """Sum over bins of equal mass of |gap| / total mass, for groups sorted by confidence in either direction.

    `mass` is the number of examples in each group and `gap` its sum of (confidence - correct). A group that straddles
    a boundary between bins is split in proportion.
    """
    total = mass.sum()
    borders = np.arange(bins + 1) * (total / bins)
    mass_so_far = np.concatenate([[0.0], np.cumsum(mass)])
    gap_so_far = np.concatenate([[0.0], np.cumsum(gap)])
    return float(np.abs(np.diff(np.interp(borders, mass_so_far, gap_so_far))).sum() / total)


def adaptive_ece(confidence: Tensor, correct: Tensor, bins: int = 15) -> float:
    """ECE of confidences `[N]` and hits `[N]`, over bins of N / bins examples each in order of confidence.

    Examples of equal confidence form one group, which is split in proportion where it straddles a boundary, so that the
    result does not depend on their order; a single example on a boundary counts partly in both bins.
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
