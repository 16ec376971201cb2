"""Reads the predictions of a run in batches: a million predictions of a thousand classes need little memory."""

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
    """Logits and labels in the order of the split, `rows` at a time."""
    for logits, labels in one.batches(rows):
        yield torch.from_numpy(logits), torch.from_numpy(labels)


def together(each: Sequence[Stored], rows: int | None = None) -> Iterator[list[Batch]]:
    """The predictions of the ensembles of the first 1, 2, ... M networks: for each batch, a list of M predictions.

    The prediction of m networks is the logarithm of the mean of their probabilities.
    """
    first = each[0]
    for other in each[1:]:
        if other.classes != first.classes or not np.array_equal(other.labels, first.labels):
            raise ValueError(
                f"{other.path} and {first.path}: expected the same labels for all teachers in a folder, got others"
            )
    rows = max(1, VALUES // (len(each) * first.classes)) if rows is None else rows
    for turn in zip(*(batches(one, rows) for one in each), strict=True):
        logits = torch.stack([z.float() if z.dtype == torch.float16 else z for z, _ in turn])  # [M, B, K]
        yield [(log_mean_probabilities(logits[: m + 1]), turn[0][1]) for m in range(len(each))]
