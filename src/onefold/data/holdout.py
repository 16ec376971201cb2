"""Makes train, validation and test splits from those that a data set comes with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from onefold.data.options import Options
from onefold.data.order import generator_for

VAL_FRACTION, TEST_FRACTION = 0.1, 0.2


class Division(NamedTuple):
    """For each split, the name of the original split it comes from and the indices there; and notes on how."""

    train: tuple[str, Tensor]
    val: tuple[str, Tensor]
    test: tuple[str, Tensor]
    notes: tuple[str, ...] = ()


def divide(labels: Mapping[str, Tensor], options: Options) -> Division:
    """Keeps the splits that are there and holds out those that are missing.

    If there are train, val and test, they are used as they are. A missing val is held out from train. If test is
    missing, val becomes the test split, as is customary with ImageNet, and a validation split is held out from train: a
    temperature must not be fitted on the images it is judged on. A single set called "all" is divided in three.
    """
    seed = options.seed
    val_fraction = VAL_FRACTION if options.val_fraction is None else options.val_fraction
    if set(labels) == {"all"}:
        rest, test = hold_out(labels["all"], TEST_FRACTION, seed, "test")
        kept, val = hold_out(labels["all"][rest], val_fraction, seed, "val")
        note = (
            f"only one set: {TEST_FRACTION:.0%} of each class is held out for test, then {val_fraction:.0%} for val, "
            f"with seed {seed}"
        )
        return Division(("all", rest[kept]), ("all", rest[val]), ("all", test), (note,))
    whole = {name: (name, torch.arange(len(values))) for name, values in labels.items()}
    if {"val", "test"} <= set(labels):
        return Division(whole["train"], whole["val"], whole["test"])
    kept, val = hold_out(labels["train"], val_fraction, seed, "val")
    notes = [f"val is {val_fraction:.0%} of each class of train, held out with seed {seed}"]
    if "test" not in labels:
        notes.append("test is the val split of the data")
    return Division(("train", kept), ("train", val), whole.get("test") or whole["val"], tuple(notes))


def hold_out(labels: Tensor, fraction: float, seed: int, purpose: str) -> tuple[Tensor, Tensor]:
    """Indices that stay and indices held out, both sorted: `fraction` of each class, drawn at random from the seed.

    From a class with two or more examples, at least one is held out and one stays; a single one stays.
    """
    if not 0 < fraction < 1:
        raise ValueError(f"{purpose}_fraction: expected a value between 0 and 1, got {fraction}")
    held = torch.zeros(len(labels), dtype=torch.bool)
    for label in labels.unique().tolist():
        members = (labels == label).nonzero().flatten()
        count = min(max(round(fraction * len(members)), 1), len(members) - 1)
        shuffled = members[torch.randperm(len(members), generator=generator_for(purpose, seed, label))]
        held[shuffled[:count]] = True
    if not held.any():
        raise ValueError(f"{purpose}: expected a class with two examples or more, to hold one out, got none")
    return (~held).nonzero().flatten(), held.nonzero().flatten()


def hold_out_last(labels: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Indices that stay and indices held out: the last `count` of each class."""
    held = torch.zeros(len(labels), dtype=torch.bool)
    for label in labels.unique().tolist():
        members = (labels == label).nonzero().flatten()
        if len(members) <= count:
            raise ValueError(
                f"val: expected more than {count} images of each class, got {len(members)} of class {label}"
            )
        held[members[-count:]] = True
    return (~held).nonzero().flatten(), held.nonzero().flatten()
