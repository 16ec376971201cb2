"""How processes share batches: a part of each for training, every so many whole ones for evaluation."""

from __future__ import annotations

import itertools

import pytest
import torch

from onefold.data import Arrays, DeviceLoader
from onefold.data.stream import StreamLoader

DATA = Arrays(torch.arange(26.0)[:, None], torch.arange(26) % 3)
Kind = type[DeviceLoader] | type[StreamLoader]


def loader(kind: Kind, rank: int, size: int, whole: bool, batch: int = 6) -> DeviceLoader | StreamLoader:
    if kind is StreamLoader:
        return StreamLoader(DATA, batch, workers=0, rank=rank, world_size=size, whole_batches=whole)
    return DeviceLoader(DATA, batch, rank=rank, world_size=size, whole_batches=whole)


@pytest.mark.parametrize("kind", [DeviceLoader, StreamLoader])
@pytest.mark.parametrize("size", [1, 2, 3, 6])
def test_parts_are_as_large_as_everybody_knows(kind: Kind, size: int) -> None:
    for rank in range(size):
        own = loader(kind, rank, size, whole=False)
        batches = list(own.batches())
        assert len(batches) == len(own) == 5
        for step, (x, _) in enumerate(batches):
            counts = own.counts(step)
            assert counts is not None
            assert len(counts) == size
            assert counts[rank] == x.shape[0]
            assert sum(counts) == (6 if step < 4 else 2)


@pytest.mark.parametrize("kind", [DeviceLoader, StreamLoader])
@pytest.mark.parametrize("size", [1, 2, 4, 7])
def test_whole_batches_go_round(kind: Kind, size: int) -> None:
    """Taken in turn they are the batches of one process; some processes may have none."""
    expected = [x for x, _ in loader(kind, 0, 1, whole=False).batches()]
    turns = itertools.zip_longest(*(loader(kind, rank, size, whole=True).batches() for rank in range(size)))
    found = [batch[0] for turn in turns for batch in turn if batch is not None]
    assert len(found) == len(expected)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
