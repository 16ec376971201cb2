"""By what data are known again."""

from __future__ import annotations

import hashlib

import torch

from onefold.data.pictures import Pictures
from onefold.data.source import Source
from onefold.data.split import Arrays, Split

TRACED = 4096  # examples


def trace(split: Split) -> str:
    """By what other data are told from the same: of arrays, a hash of the labels and of examples spread over them."""
    if not isinstance(split, Arrays):
        held = getattr(split, "dataset", split)
        return f"{type(held).__name__} of {len(held) if hasattr(held, '__len__') else 'unknown length'}"
    sample = split.x[:: -(-len(split) // TRACED)]
    digest = hashlib.blake2b(f"{split.x.dtype} {list(split.x.shape)}".encode(), digest_size=16)
    for values in (split.y, sample):
        digest.update(values.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def traces(source: Source) -> dict[str, str]:
    """Of every split; of images that are not in memory, how many there are and a hash of their labels."""
    splits = source.splits.items()
    return {name: of_labels(split) if isinstance(split, Pictures) else trace(split) for name, split in splits}


def of_labels(pictures: Pictures) -> str:
    labels = pictures.labels.to(torch.int64).numpy()
    return f"{len(labels)}: {hashlib.blake2b(labels.tobytes(), digest_size=16).hexdigest()}"
