"""Predictions of a run, piece by piece: a million answers of a thousand classes need no more room than a few."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from onefold.metrics import log_mean_probabilities
from onefold.predictions import Stored
from onefold.predictions.files import VALUES

Batch = tuple[Tensor, Tensor]  # logits [B, K] and labels [B]


def batches(one: Stored, rows: int | None = None) -> Iterator[Batch]:
    """Logits and labels in the order of the split, so many rows at a time."""
    for logits, labels in one.batches(rows):
        yield torch.from_numpy(logits), torch.from_numpy(labels)


def together(each: Sequence[Stored], rows: int | None = None) -> Iterator[list[Batch]]:
    """Of ensembles of the first 1, 2, ... M networks, what each answers: batch after batch, M predictions at a time.

    The prediction of m of them is the logarithm of the mean of their probabilities.
    """
    first = each[0]
    for other in each[1:]:
        if other.classes != first.classes or not np.array_equal(other.labels, first.labels):
            raise ValueError(
                f"{other.path} and {first.path}: expected teachers of one ensemble side by side, got other labels"
            )
    rows = max(1, VALUES // (len(each) * first.classes)) if rows is None else rows
    for turn in zip(*(batches(one, rows) for one in each), strict=True):
        logits = torch.stack([z.float() if z.dtype == torch.float16 else z for z, _ in turn])  # [M, B, K]
        yield [(log_mean_probabilities(logits[: m + 1]), turn[0][1]) for m in range(len(each))]
