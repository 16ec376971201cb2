"""Stores predictions: in memory while there are few, in a temporary file once there are many."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from typing import IO

import numpy as np
import torch
from torch import Tensor

HELD = 1 << 28  # bytes of log-probabilities that stay in memory
Answered = tuple[Tensor, Tensor]  # labels [B] and log-probabilities [B, K] in float32, on the CPU


class Kept:
    """Collects labels and log-probabilities, batch after batch.

    It copies into byte buffers and keeps no tensors: small ones scattered among the many large ones that come and go
    would keep the allocator from reusing their memory, so that usage would grow anyway.
    """

    def __init__(self) -> None:
        self.labels, self.logits = bytearray(), bytearray()
        self.rows, self.classes = 0, 0
        self.file: IO[bytes] | None = None

    def add(self, labels: Tensor, logits: Tensor) -> None:
        self.labels += labels.long().contiguous().numpy().tobytes()
        self.rows, self.classes = self.rows + len(logits), logits.shape[1]
        content = logits.float().contiguous().numpy()
        if self.file is not None:
            self.file.write(content.data)
            return
        self.logits += content.tobytes()
        if len(self.logits) > HELD:
            self.file = tempfile.TemporaryFile()  # noqa: SIM115 -- closed in `joined`
            self.file.write(self.logits)
            self.logits = bytearray()

    def joined(self) -> Answered:
        """Labels `[N]` and log-probabilities `[N, K]`, the latter memory-mapped if they are in the file."""
        labels = over(self.labels, torch.long)
        shape = self.rows, self.classes
        if self.file is None:
            return labels, over(self.logits, torch.float32).view(shape)
        self.file.flush()
        with self.file:
            # Copy-on-write, because torch wants a writable array.
            return labels, torch.from_numpy(np.memmap(self.file, np.float32, "c", 0, shape))


def over(content: bytearray, dtype: torch.dtype) -> Tensor:
    """A tensor that shares memory with `content`, which may be empty: torch.frombuffer refuses that."""
    return torch.frombuffer(content, dtype=dtype) if content else torch.empty(0, dtype=dtype)


def kept(batches: Iterable[Answered]) -> Answered:
    """All batches, concatenated."""
    found = Kept()
    for labels, logits in batches:
        found.add(labels, logits)
    return found.joined()
