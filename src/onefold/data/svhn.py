"""SVHN, the house numbers: 73,257 + 26,032 images of 32 x 32, through torchvision (which needs scipy for them)."""

from __future__ import annotations

from pathlib import Path

import torch

from onefold.data.fetch import missing, refused
from onefold.data.holdout import divide
from onefold.data.options import Options
from onefold.data.source import Source, from_arrays
from onefold.data.split import Arrays


def load_svhn(root: Path, options: Options) -> Source:
    """`train_32x32.mat` and `test_32x32.mat`; the validation split is 10% of each class of train, by the seed.

    Digits are cropped but not flipped in training.
    """
    files = [root / "train_32x32.mat", root / "test_32x32.mat"]
    if not options.download and not all(file.is_file() for file in files):
        raise missing("svhn", files)
    from torchvision import datasets  # slow to import, and few runs need it

    with refused("svhn", root, options.download):
        found = {split: datasets.SVHN(str(root), split=split, download=options.download) for split in ("train", "test")}
    arrays = {
        split: Arrays(torch.from_numpy(data.data), torch.from_numpy(data.labels)) for split, data in found.items()
    }
    labels = {split: part.y for split, part in arrays.items()}
    division = divide(labels, options)
    train, val, test = (arrays[split].take(indices) for split, indices in division[:3])
    classes = tuple(str(digit) for digit in range(10))
    return from_arrays("svhn", train, val, test, classes, flip=False, notes=division.notes)
