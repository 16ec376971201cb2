from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from onefold.metrics import EntropyHistogram


def test_counts_are_numpys() -> None:
    entropies = math.log(7) * torch.rand(5000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    histogram = EntropyHistogram(7, bins=20)
    for part in entropies.split(333):
        histogram.update(part)
    expected, edges = np.histogram(entropies.numpy(), 20, (0, math.log(7)))
    np.testing.assert_allclose(histogram.edges, edges, rtol=1e-12)
    assert histogram.counts() == expected.tolist()
    assert histogram.compute() == pytest.approx({"entropy": float(entropies.mean()), "count": 5000})


def test_ends_belong_to_the_outer_bins() -> None:
    histogram = EntropyHistogram(2, bins=4)
    top = math.log(2)
    histogram.update(torch.tensor([0.0, -1e-7, top, top + 1e-6, top / 2], dtype=torch.float64))
    assert histogram.counts() == [2, 0, 1, 2]


def test_halves_merge_to_the_whole() -> None:
    one, two, both = (EntropyHistogram(3) for _ in range(3))
    a, b = torch.rand(50), torch.rand(70)
    one.update(a)
    two.update(b)
    both.update(torch.cat([a, b]))
    assert one.merge(two).counts() == both.counts()


def test_refused() -> None:
    histogram = EntropyHistogram(3)
    with pytest.raises(ValueError, match="no examples"):
        histogram.compute()
    histogram.update(torch.tensor([0.1, float("nan")]))
    with pytest.raises(ValueError, match="got 1 that are not"):
        histogram.counts()
    with pytest.raises(ValueError, match="classes: expected at least 2"):
        EntropyHistogram(1)
    with pytest.raises(ValueError, match="bins: expected at least 1"):
        EntropyHistogram(3, bins=0)
