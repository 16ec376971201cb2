"""Whether the splits of a data set look alike: where they do not, one of them was prepared otherwise, or cut badly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from onefold.data.augment import as_input
from onefold.data.sample import sample
from onefold.data.split import Arrays, first_few

EXAMPLES, FEW = 1024, 32  # of a split in memory at most; of large images, and of those that are read one by one
NUMBERS = 1 << 22  # in them, where there are more than a few
PLACES = 256  # of each example that its size is judged by, the same in all
FEWEST = 64  # values that are not zero, below which a scale is not judged
SCALE = 30.0  # times as large: bytes are 255 times pixels in [0, 1] and some 100 times standardised ones
SIGNED = 0.9, 0.05  # of the examples, and of the values, at least, where inputs are centred
APART = 4.0  # quartile ranges between the features of two splits


def check_scale(splits: Mapping[str, Tensor]) -> None:
    """Refuses inputs `[N, ...]` on another scale than those of train. For floats that nothing changes on their way:
    a data set that differs from one split to the other does not do so by a factor of thirty."""
    if notes := scale_notes(splits):
        raise ValueError(
            f"{notes[0]}; scale both alike (uint8 images are divided by 255 for you, floats are taken as they are)"
        )


def scale_notes(splits: Mapping[str, Tensor]) -> list[str]:
    train = splits["train"]
    return [
        f"{name}: expected inputs on the scale of train, got {ranges(other, train)}, typically {times}"
        for name, other in splits.items()
        if name != "train" and (times := other_scale(train, other))
    ]


def range_notes(splits: Mapping[str, Tensor]) -> list[str]:
    """Sentences about inputs `[N, ...]` that look prepared otherwise than those of train, but for their scale."""
    train, notes = splits["train"], []
    for name, other in splits.items():
        if name == "train" or other_scale(train, other):
            continue
        if (centred(train) and unsigned(other)) or (centred(other) and unsigned(train)):
            notes.append(
                f"{name} goes from {ranges(other, train)}: one looks standardised and the other does not; if so, "
                "prepare both alike"
            )
        elif train.dim() == 2 and train.shape[1:] == other.shape[1:] and features_apart(train, other):
            notes.append(
                f"{name}: most features lie elsewhere than in train ({ranges(other, train)}); if one of the two was "
                "standardised, standardise the other with the same numbers"
            )
    return notes


def looked_at(arrays: Arrays) -> Tensor:
    """Some examples `[N, ...]` as a network sees them, on the host."""
    each = max(1, arrays.x[0].numel())
    some = sample(arrays, max(FEW, min(EXAMPLES, NUMBERS // each)))
    assert isinstance(some, Arrays), "arrays stay arrays"
    return as_input(some.x.detach().cpu())


def other_scale(train: Tensor, other: Tensor) -> str | None:
    """In words how much larger or smaller, where it is by far and not a matter of a few outliers or dark images."""
    sizes = [magnitudes(x) for x in (train, other)]
    if sizes[0] is None or sizes[1] is None:
        return None
    ratios = sizes[1] / sizes[0]  # of the median and of what is nearly the largest: both tails would have to lie
    if bool((ratios >= SCALE).all()):
        return f"{float(ratios[0]):,.0f} times as large"
    return f"{float(1 / ratios[0]):,.0f} times as small" if bool((ratios <= 1 / SCALE).all()) else None


def magnitudes(x: Tensor) -> Tensor | None:
    """Median and 99th percentile of the values that are not zero, of which sparse inputs and dark images have many.

    Of a large example places drawn by a seed: regular ones would see some of its features and not others.
    """
    rows = x.reshape(len(x), -1)
    if rows.shape[1] > PLACES:
        rows = rows[:, torch.randperm(rows.shape[1], generator=torch.Generator().manual_seed(0))[:PLACES]]
    values = rows.double().abs()
    values = values[values.isfinite() & (values > 0)]
    return values.quantile(torch.tensor([0.5, 0.99], dtype=values.dtype)) if len(values) >= FEWEST else None


def centred(x: Tensor) -> bool:
    """Whether nearly every example goes well below zero."""
    below = x.reshape(len(x), -1) < 0
    examples, values = SIGNED
    shares = below.any(dim=1).double().mean(), below.double().mean()
    return len(x) >= 8 and bool(shares[0] >= examples) and bool(shares[1] >= values)


def unsigned(x: Tensor) -> bool:
    return len(x) >= 8 and not bool((x < 0).any())


def features_apart(train: Tensor, other: Tensor) -> bool:
    """Whether most features `[N, F]` are elsewhere, or spread otherwise, by several of their quartile ranges."""
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
    """Sentences about classes that are in one split and not in another, and about those nobody can learn."""
    held = {name: set(values.unique().tolist()) for name, values in labels.items()}
    train, notes = held["train"], []
    strange: set[int] = set()
    for name, own in held.items():
        if only := own - train:
            strange |= only
            count = int(torch.isin(labels[name].cpu(), torch.tensor(sorted(only))).sum())
            notes.append(
                f"train has no example of {part(only, classes)}, and {name} has {count:,}; if the data are sorted by "
                "class, shuffle them before they are split"
            )
        if lacking := train - own:
            notes.append(f"{name} has no example of {part(lacking, classes)}")
    if spare := set(range(len(classes))) - train - strange:
        notes.append(f"train has no example of {part(spare, classes)}, which the network can answer")
    return notes


def part(chosen: set[int], classes: Sequence[str]) -> str:
    return f"{len(chosen):,} of the {len(classes):,} classes: {first_few([classes[label] for label in sorted(chosen)])}"


def ranges(other: Tensor, train: Tensor) -> str:
    a, b = (f"{float(x.min()):.3g} to {float(x.max()):.3g}" for x in (other, train))
    return f"{a} where train has {b}"
