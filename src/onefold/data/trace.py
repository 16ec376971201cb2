"""Fingerprints of data, by which a run recognises that they have changed."""

from __future__ import annotations

import hashlib

import torch

from onefold.data.pictures import Pictures
from onefold.data.source import Source
from onefold.data.split import Arrays, Split

TRACED = 4096  # examples that go into a fingerprint, at most


def trace(split: Split) -> str:
    """A fingerprint of a split: for arrays, a hash of all labels and of examples spread over the split."""
    if not isinstance(split, Arrays):
        held = getattr(split, "dataset", split)
        return f"{type(held).__name__} of {len(held) if hasattr(held, '__len__') else 'unknown length'}"
    sample = split.x[:: -(-len(split) // TRACED)]
    digest = hashlib.blake2b(f"{split.x.dtype} {list(split.x.shape)}".encode(), digest_size=16)
    for values in (split.y, sample):
        digest.update(values.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def traces(source: Source) -> dict[str, str]:
    """Fingerprints of all splits; for images that are not in memory, their number and a hash of the labels."""
    splits = source.splits.items()
    return {name: of_labels(split) if isinstance(split, Pictures) else trace(split) for name, split in splits}


def of_labels(pictures: Pictures) -> str:
    labels = pictures.labels.to(torch.int64).numpy()
    return f"{len(labels)}: {hashlib.blake2b(labels.tobytes(), digest_size=16).hexdigest()}"
