"""Fingerprints of data, by which a run recognises that they have changed."""

from __future__ import annotations

import hashlib

import torch
from torch.utils.data import DataLoader, IterableDataset

from onefold.data.examples import Key, Refusal, SeededExamples
from onefold.data.pictures import Pictures
from onefold.data.source import Source
from onefold.data.split import Arrays, Split

TRACED = 4096  # examples that go into a fingerprint, at most
GLANCED = 16  # examples that `glance` reads


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


def glance(split: Split) -> list[list[float]]:
    """Label, mean and deviation of a few examples of a user's `Dataset`; empty if they cannot be read one by one.

    Not a hash, because other versions of a library may decode an image to slightly different values. For examples that
    are random even with seeded global random numbers, only the label is included.
    """
    dataset = split.dataset if isinstance(split, DataLoader) else split
    if isinstance(dataset, Arrays | IterableDataset) or not hasattr(dataset, "__len__"):
        return []
    examples, rows = SeededExamples(dataset, None, None), []
    for index in range(0, len(dataset), max(1, -(-len(dataset) // GLANCED))):
        try:
            found, again = examples[Key(index, index)], examples[Key(index, index)]
        except Exception:  # a data set may raise anything; training will report it
            return []
        if isinstance(found, Refusal) or isinstance(again, Refusal):
            return []
        x, label, _ = found
        same = torch.equal(x, again[0]) and x.numel() > 0
        values = x.double()
        rows.append([float(label), *([float(values.mean()), float(values.std(correction=0))] if same else [])])
    return rows
