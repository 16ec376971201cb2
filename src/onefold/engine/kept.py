"""Answers that are kept: in memory while they are few, in a file that the system clears away once they are many."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from typing import IO

import numpy as np
import torch
from torch import Tensor

HELD = 1 << 28  # bytes of log-probabilities that stay in memory
Answered = tuple[Tensor, Tensor]  # labels [B] and log-probabilities [B, K] in float32, on the host


class Kept:
    """Labels and log-probabilities, batch after batch."""

    def __init__(self) -> None:
        self.labels: list[Tensor] = []
        self.logits: list[Tensor] = []
        self.bytes, self.rows = 0, 0
        self.file: IO[bytes] | None = None

    def add(self, labels: Tensor, logits: Tensor) -> None:
        self.labels.append(labels)
        self.logits.append(logits)
        self.bytes += logits.nbytes
        if self.bytes > HELD:
            self.spill()

    def spill(self) -> None:
        """Writes what is in memory to the end of the file."""
        if self.file is None:
            self.file = tempfile.TemporaryFile()  # noqa: SIM115 -- closed when all is in it
        for logits in self.logits:
            self.file.write(logits.contiguous().numpy().data)
            self.rows += len(logits)
        classes = self.logits[-1].shape[1]
        self.logits, self.bytes = [torch.empty(0, classes)], 0

    def joined(self) -> Answered:
        """Labels `[N]` and log-probabilities `[N, K]`; those in the file come into memory where they are looked at."""
        if self.file is None:
            return torch.cat(self.labels), torch.cat(self.logits)
        self.spill()
        self.file.flush()
        shape = self.rows, self.logits[0].shape[1]
        with self.file:
            # Copied on writing: torch wants what it could write to.
            logits = torch.from_numpy(np.memmap(self.file, np.float32, "c", 0, shape))
        return torch.cat(self.labels), logits


def kept(batches: Iterable[Answered]) -> Answered:
    """All batches, one after the other."""
    found = Kept()
    for labels, logits in batches:
        found.add(labels, logits)
    return found.joined()
