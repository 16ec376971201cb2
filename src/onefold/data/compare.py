"""Checks that the splits of a data set look alike; if not, one was preprocessed differently, or split badly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from onefold.data.augment import as_input
from onefold.data.sample import sample
from onefold.data.split import Arrays, first_few

EXAMPLES, FEW = 1024, 32  # examples sampled: at most, in memory; of large images and of files that are read one by one
NUMBERS = 1 << 22  # most values sampled from a split, unless FEW examples have more
PLACES = 256  # values of each example by which its scale is judged, at the same positions in all
FEWEST = 64  # with fewer nonzero values than this, scale is not judged
SCALE = 30.0  # ratio from which scales differ: bytes are 255 times pixels in [0, 1], and about 100 standardised ones
SIGNED = 0.9, 0.05  # inputs are centred if at least these shares of the examples and of the values are negative
APART = 4.0  # features of two splits differ if they are this many interquartile ranges apart


def check_scale(splits: Mapping[str, Tensor]) -> None:
    """Refuses inputs `[N, ...]` on another scale than those of train; only for floats, which are used as they are.
    Genuine differences between splits do not reach a factor of thirty."""
    if notes := scale_notes(splits):
        raise ValueError(
            f"{notes[0]}; scale both alike (uint8 images are divided by 255 for you, floats are used as they are)"
        )


def scale_notes(splits: Mapping[str, Tensor]) -> list[str]:
    train = splits["train"]
    return [
        f"{name}: expected inputs on the same scale as train, got {ranges(other, train)}, typically {times}"
        for name, other in splits.items()
        if name != "train" and (times := other_scale(train, other))
    ]


def range_notes(splits: Mapping[str, Tensor]) -> list[str]:
    """Notes about inputs `[N, ...]` that look preprocessed differently from train, other than in scale."""
    train, notes = splits["train"], []
    for name, other in splits.items():
        if name == "train" or other_scale(train, other):
            continue
        if (centred(train) and unsigned(other)) or (centred(other) and unsigned(train)):
            notes.append(
                f"{name} ranges from {ranges(other, train)}: one looks standardised and the other does not; if so, "
                "prepare both in the same way"
            )
        elif train.dim() == 2 and train.shape[1:] == other.shape[1:] and features_apart(train, other):
            notes.append(
                f"{name}: most features have a different range than in train ({ranges(other, train)}); if one of the "
                "two was standardised, standardise the other with the same mean and deviation"
            )
    return notes


def looked_at(arrays: Arrays) -> Tensor:
    """Some examples `[N, ...]` as a network sees them, on the CPU."""
    each = max(1, arrays.x[0].numel())
    some = sample(arrays, max(FEW, min(EXAMPLES, NUMBERS // each)))
    assert isinstance(some, Arrays), "arrays stay arrays"
    return as_input(some.x.detach().cpu())


def other_scale(train: Tensor, other: Tensor) -> str | None:
    """How much larger or smaller, in words, if far beyond what a few outliers or dark images can explain; else None."""
    sizes = [magnitudes(x) for x in (train, other)]
    if sizes[0] is None or sizes[1] is None:
        return None
    ratios = sizes[1] / sizes[0]  # of the median and of the 99th percentile: both have to differ
    if bool((ratios >= SCALE).all()):
        return f"{float(ratios[0]):,.0f} times as large"
    return f"{float(1 / ratios[0]):,.0f} times as small" if bool((ratios <= 1 / SCALE).all()) else None


def magnitudes(x: Tensor) -> Tensor | None:
    """Median and 99th percentile of the nonzero absolute values: sparse inputs and dark images have many zeros.

    Large examples are sampled at random positions, with a fixed seed: regular ones could miss some features entirely.
    """
    rows = x.reshape(len(x), -1)
    if rows.shape[1] > PLACES:
        rows = rows[:, torch.randperm(rows.shape[1], generator=torch.Generator().manual_seed(0))[:PLACES]]
    values = rows.double().abs()
    values = values[values.isfinite() & (values > 0)]
    return values.quantile(torch.tensor([0.5, 0.99], dtype=values.dtype)) if len(values) >= FEWEST else None


def centred(x: Tensor) -> bool:
    """Whether nearly every example has negative values, and enough of them."""
    below = x.reshape(len(x), -1) < 0
    examples, values = SIGNED
    shares = below.any(dim=1).double().mean(), below.double().mean()
    return len(x) >= 8 and bool(shares[0] >= examples) and bool(shares[1] >= values)


def unsigned(x: Tensor) -> bool:
    return len(x) >= 8 and not bool((x < 0).any())


def features_apart(train: Tensor, other: Tensor) -> bool:
    """Whether most features `[N, F]` differ in position or spread by several times their interquartile range."""
    if min(len(train), len(other)) < FEW:
        return False
    every = -(-train.shape[1] // 1024)
    quartiles = torch.tensor([0.25, 0.5, 0.75], dtype=torch.double)
    (low, middle, high), (low2, middle2, high2) = (
        x[:, ::every].double().quantile(quartiles, dim=0) for x in (train, other)
    )
    spread, spread2 = high - low, high2 - low2
    varied = (spread > 0) & (spread2 > 0)  # a feature that is mostly zero has none
    narrow, wide = torch.minimum(spread, spread2)[varied], torch.maximum(spread, spread2)[varied]
    distances = torch.maximum(wide, (middle - middle2).abs()[varied]) / narrow
    return bool(varied.any()) and bool(distances.median() >= APART)


def class_notes(labels: Mapping[str, Tensor], classes: Sequence[str]) -> list[str]:
    """Notes about classes that are in one split but not in another, and about classes that train does not have."""
    held = {name: set(values.unique().tolist()) for name, values in labels.items()}
    train, notes = held["train"], []
    strange: set[int] = set()
    for name, own in held.items():
        if only := own - train:
            strange |= only
            count = int(torch.isin(labels[name].cpu(), torch.tensor(sorted(only))).sum())
            notes.append(
                f"train has no example of {part(only, classes)}, but {name} has {count:,}; if the data are sorted by "
                "class, shuffle them before splitting them"
            )
        if lacking := train - own:
            notes.append(f"{name} has no example of {part(lacking, classes)}")
    if spare := set(range(len(classes))) - train - strange:
        notes.append(f"train has no example of {part(spare, classes)}, for which the network has outputs")
    return notes


def part(chosen: set[int], classes: Sequence[str]) -> str:
    return f"{len(chosen):,} of the {len(classes):,} classes: {first_few([classes[label] for label in sorted(chosen)])}"


def ranges(other: Tensor, train: Tensor) -> str:
    a, b = (f"{float(x.min()):.3g} to {float(x.max()):.3g}" for x in (other, train))
    return f"{a} where train has {b}"
