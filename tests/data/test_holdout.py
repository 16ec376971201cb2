from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from onefold.data.holdout import divide, hold_out, hold_out_last
from onefold.data.options import Options


@settings(deadline=None, max_examples=40)
@given(
    labels=st.lists(st.integers(0, 4), min_size=5, max_size=60).filter(lambda given: len(given) > len(set(given))),
    fraction=st.floats(0.05, 0.95),
    seed=st.integers(0, 2**16),
)
def test_takes_its_part_of_every_class(labels: list[int], fraction: float, seed: int) -> None:
    given_labels = torch.tensor(labels)
    kept, held = hold_out(given_labels, fraction, seed, "val")
    assert sorted(kept.tolist() + held.tolist()) == list(range(len(labels)))
    assert kept.tolist() == sorted(kept.tolist())
    assert held.tolist() == sorted(held.tolist())
    for label in set(labels):
        count, taken = labels.count(label), int((given_labels[held] == label).sum())
        assert taken == min(max(round(fraction * count), 1), count - 1)


def test_draws_from_the_seed_and_the_purpose() -> None:
    labels = torch.zeros(50, dtype=torch.long)
    one, same, other, test = (
        hold_out(labels, 0.5, seed, purpose)[1].tolist()
        for seed, purpose in ((1, "val"), (1, "val"), (2, "val"), (1, "test"))
    )
    assert one == same
    assert one != other
    assert one != test


def test_the_last_of_each_class() -> None:
    labels = torch.tensor([0, 1, 0, 1, 0, 1, 1])
    kept, held = hold_out_last(labels, 2)
    assert (kept.tolist(), held.tolist()) == ([0, 1, 3], [2, 4, 5, 6])
    with pytest.raises(ValueError, match="val: expected more than 3 images of each class, got 3 of class 0"):
        hold_out_last(labels, 3)


def test_one_set_is_divided_in_three_that_share_nothing() -> None:
    labels = torch.arange(100) % 4
    train, val, test, _ = divide({"all": labels}, Options(seed=1, val_fraction=0.25))
    parts = [indices.tolist() for _, indices in (train, val, test)]
    assert [len(part) for part in parts] == [60, 20, 20]
    assert sorted(index for part in parts for index in part) == list(range(100))
