"""Predictions of a run, read piece by piece: a million answers of a thousand classes need no more room than a few."""

from __future__ import annotations

import contextlib
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from onefold.metrics import log_mean_probabilities

VALUES = 2**20  # logits that are looked at together: 8 MiB in float64, and as much again for each step on the way
Labels = npt.NDArray[np.int64]
Batch = tuple[Tensor, Tensor]  # logits [B, K] and labels [B]
BROKEN = (ValueError, EOFError, LookupError, TypeError, AttributeError, zipfile.BadZipFile, zlib.error)


@dataclass(frozen=True, eq=False)
class Stored:
    """The predictions of a split: labels `[N]`, which are small, and where the logits `[N, K]` lie."""

    path: Path
    labels: Labels
    classes: int

    @property
    def examples(self) -> int:
        return len(self.labels)

    def batches(self, rows: int | None = None) -> Iterator[Batch]:
        """Logits and labels in the order of the split, so many rows at a time."""
        rows = max(1, VALUES // self.classes) if rows is None else rows
        with blaming(self.path), zipfile.ZipFile(self.path) as archive, archive.open("logits.npy") as file:
            _, dtype = header(file)
            for begin in range(0, self.examples, rows):
                labels = self.labels[begin : begin + rows]
                content = bytearray(file.read(len(labels) * self.classes * dtype.itemsize))
                logits = np.frombuffer(content, dtype).reshape(len(labels), self.classes)
                native = logits.astype(dtype.newbyteorder("="), copy=False)
                yield torch.from_numpy(native), torch.from_numpy(labels)


def stored(path: Path) -> Stored | None:
    """The predictions in a file, of which only the labels are read; None where there is no file."""
    if not path.exists():
        return None
    with blaming(path), zipfile.ZipFile(path) as archive:
        with archive.open("labels.npy") as file:
            labels = np.lib.format.read_array(file, allow_pickle=False)
        with archive.open("logits.npy") as file:
            shape, dtype = header(file)
        if labels.dtype.kind not in "iu" or dtype.kind != "f" or len(shape) != 2 or labels.shape != shape[:1]:
            raise ValueError(f"labels {labels.dtype} {labels.shape} and logits {dtype} {shape}")
        if shape[1] < 2 or not len(labels) or labels.min() < 0 or labels.max() >= shape[1]:
            raise ValueError(f"labels outside of {shape[1]} classes")
    return Stored(path, labels.astype(np.int64), shape[1])


def header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[np.generic]]:
    """Shape and type of an array that begins here."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, by_columns, dtype = read(file)
    if by_columns and len(shape) > 1:
        raise ValueError("an array stored by columns")
    return shape, dtype


@contextlib.contextmanager
def blaming(path: Path) -> Iterator[None]:
    """Whatever a damaged file makes numpy say, as one sentence."""
    try:
        yield
    except BROKEN:
        raise ValueError(f"{path}: expected labels and logits, got a damaged or foreign file") from None


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
    for batches in zip(*(one.batches(rows) for one in each), strict=True):
        logits = torch.stack([z.float() if z.dtype == torch.float16 else z for z, _ in batches])  # [M, B, K]
        yield [(log_mean_probabilities(logits[: m + 1]), batches[0][1]) for m in range(len(each))]
