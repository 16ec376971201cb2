"""Equal-width and equal-mass bins, against plain loops."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from onefold.metrics import adaptive_ece
from onefold.metrics.bins import equal_width_bins


def by_fractions(confidence: list[float], correct: list[bool], bins: int) -> float:
    """Every example cut into `bins` slivers, so that each bin takes N whole ones; ties share their hits."""
    hits: dict[float, list[bool]] = {}
    for c, hit in zip(confidence, correct, strict=True):
        hits.setdefault(c, []).append(hit)
    slivers = [(c, sum(hits[c]) / len(hits[c])) for c in sorted(confidence) for _ in range(bins)]
    n, total = len(confidence), 0.0
    for b in range(bins):
        part = slivers[b * n : (b + 1) * n]
        total += abs(sum(c - hit for c, hit in part)) / bins / n
    return total


@given(
    levels=st.integers(1, 50),
    n=st.integers(1, 60),
    bins=st.integers(1, 20),
    seed=st.integers(0, 2**16),
)
@settings(deadline=None, max_examples=60)
def test_adaptive_ece_is_the_plain_loop(levels: int, n: int, bins: int, seed: int) -> None:
    rng = random.Random(seed)
    confidence = [rng.randint(0, levels) / levels for _ in range(n)]  # with ties, zeros and ones
    correct = [rng.random() < c for c in confidence]
    result = adaptive_ece(torch.tensor(confidence, dtype=torch.float64), torch.tensor(correct), bins)
    assert result == pytest.approx(by_fractions(confidence, correct, bins), abs=1e-12)


def test_adaptive_ece_does_not_depend_on_the_order_of_ties() -> None:
    confidence = torch.tensor([0.9] * 20 + [0.5] * 10)
    correct = torch.arange(30) % 3 == 0
    order = torch.randperm(30, generator=torch.Generator().manual_seed(0))
    shuffled = adaptive_ece(confidence[order], correct[order])
    assert shuffled == pytest.approx(adaptive_ece(confidence, correct), abs=1e-14)


def test_one_adaptive_bin_is_the_gap_of_the_means() -> None:
    confidence, correct = torch.tensor([0.6, 0.7, 0.8]), torch.tensor([True, False, False])
    assert adaptive_ece(confidence, correct, bins=1) == pytest.approx(0.7 - 1 / 3)


def test_adaptive_ece_refuses_nothing_and_shapes_that_differ() -> None:
    with pytest.raises(ValueError, match="confidence"):
        adaptive_ece(torch.zeros(0), torch.zeros(0))
    with pytest.raises(ValueError, match=r"\[2\] and \[3\]"):
        adaptive_ece(torch.zeros(2), torch.zeros(3))
    with pytest.raises(ValueError, match="bins"):
        adaptive_ece(torch.zeros(2), torch.zeros(2), bins=0)


def test_bins_take_any_memory_layout_without_a_warning() -> None:
    probability = torch.rand(4, 5)
    assert torch.equal(equal_width_bins(probability.T, 15), equal_width_bins(probability, 15).T)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bins", [1, 2, 10, 15])
def test_bins_hold_their_upper_border(bins: int, dtype: torch.dtype) -> None:
    borders = torch.tensor([b / bins for b in range(bins + 1)], dtype=dtype)
    assert equal_width_bins(borders, bins).tolist() == [0, *range(bins)]
    above = torch.nextafter(borders[:-1], torch.ones((), dtype=dtype))
    assert equal_width_bins(above, bins).tolist() == list(range(bins))
