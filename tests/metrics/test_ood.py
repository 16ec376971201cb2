"""Out-of-distribution detection, against plain loops and scikit-learn."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve
from torch import Tensor

from onefold.metrics import OutOfDistribution, detection
from onefold.metrics.cells import signed_cells


def streamed(inside: Tensor, outside: Tensor, cells: int = 2**18) -> OutOfDistribution:
    meter = OutOfDistribution(cells)
    for i in range(0, len(inside), 7):
        meter.update(inside[i : i + 7], out=False)
    for i in range(0, len(outside), 11):
        meter.update(outside[i : i + 11], out=True)
    return meter


def by_library(inside: Tensor, outside: Tensor) -> dict[str, float]:
    score = torch.cat([inside, outside]).double().numpy()
    out = np.arange(len(score)) >= len(inside)
    fpr, tpr, _ = roc_curve(~out, -score, drop_intermediate=False)
    return {
        "auroc": roc_auc_score(out, score),
        "aupr": average_precision_score(out, score),
        "aupr_in": average_precision_score(~out, -score),
        "fpr95": float(fpr[np.argmax(tpr >= 0.95 - 1e-12)]),
    }


def by_loop(inside: list[float], outside: list[float]) -> tuple[float, float]:
    """AUROC and FPR95 from their words."""
    wins = sum((o > i) + (o == i) / 2 for o in outside for i in inside)
    for t in sorted(inside + outside):
        if sum(i <= t for i in inside) >= math.ceil(len(inside) * 19 / 20):
            return wins / len(inside) / len(outside), sum(o <= t for o in outside) / len(outside)
    raise AssertionError("some threshold accepts all")


def draw(n: int, seed: int, shift: float = 0.7) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, generator=generator), torch.randn(n + 13, generator=generator) + shift


@given(n=st.integers(1, 60), levels=st.sampled_from([1, 4, 1000]), seed=st.integers(0, 2**16))
@settings(deadline=None, max_examples=40)
def test_exact_and_streamed_are_the_definitions(n: int, levels: int, seed: int) -> None:
    # Multiples of 1/levels below 2^11 cells a power of two: each its own cell, ties included.
    inside, outside = ((s * levels).round().clamp(-2000, 2000) / levels for s in draw(n, seed))
    exact = detection(inside, outside)
    assert exact == pytest.approx(by_library(inside, outside), abs=1e-12)
    assert (exact["auroc"], exact["fpr95"]) == pytest.approx(by_loop(inside.tolist(), outside.tolist()))
    cells = [signed_cells(s, 2**18).double() for s in (inside, outside)]
    assert streamed(inside, outside).compute() == pytest.approx(detection(*cells), abs=1e-12)
    if levels < 1000:
        assert streamed(inside, outside).compute() == pytest.approx(exact, abs=1e-12)


@pytest.mark.parametrize("cells", [2**12, 2**18])
def test_streamed_raw_scores_are_close_and_know_how_close(cells: int) -> None:
    inside, outside = draw(3000, seed=1)
    meter = streamed(inside, outside, cells)
    expected = by_library(inside, outside)
    assert meter.compute() == pytest.approx(expected, abs=5e-4 if cells == 2**18 else 2e-2)
    assert abs(meter.compute()["auroc"] - expected["auroc"]) <= meter.resolution()
    assert meter.resolution() < (2e-4 if cells == 2**18 else 2e-2)


def test_resolution_tells_of_a_score_whose_interesting_end_is_at_one() -> None:
    generator = torch.Generator().manual_seed(2)
    inside, outside = torch.rand(500, generator=generator) * 1e-5, torch.rand(500, generator=generator) * 2e-5
    good, bad = streamed(inside, outside), streamed(inside - 1, outside - 1)
    assert good.resolution() < 1e-3
    assert bad.resolution() > 0.4
    assert good.compute()["auroc"] == pytest.approx(0.75, abs=0.05)


def test_separate_and_reversed() -> None:
    low, high = torch.tensor([-3.0, -2.0]), torch.tensor([1.0, 1e6])
    assert streamed(low, high).compute() == {"auroc": 1.0, "aupr": 1.0, "aupr_in": 1.0, "fpr95": 0.0}
    worst = streamed(high, low).compute()
    assert worst["auroc"] == 0
    assert worst["fpr95"] == 1


def test_cells_keep_the_order_over_all_magnitudes() -> None:
    magnitudes = 2.0 ** torch.linspace(-31.9, 31.9, 5001, dtype=torch.float64)
    values = torch.cat([-magnitudes.flip(0), torch.zeros(1), magnitudes]).float()
    cells = signed_cells(values, 2**18).long()
    assert (cells.diff() >= 0).all()
    assert len(set(cells.tolist())) > 9990
    assert cells.min() >= 0
    assert cells.max() < 2**18
    assert signed_cells(torch.tensor([-0.0, 0.0]), 2**18).tolist() == [2**17, 2**17]
    far = signed_cells(torch.tensor([-3e38, 3e38, -1e-40, 1e-40]), 2**18).tolist()
    assert far == [0, 2**18 - 1, 2**17 - 1, 2**17]
    width = torch.tensor([1.0, 1 + 2**-12, 1 + 2**-11])
    assert signed_cells(width, 2**18).diff().tolist() == [0, 1]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_dtypes(dtype: torch.dtype) -> None:
    inside, outside = (s.to(dtype) for s in draw(50, seed=3))
    assert streamed(inside, outside).compute() == pytest.approx(detection(inside, outside), abs=2e-3)


def test_halves_merge_exactly() -> None:
    inside, outside = draw(100, seed=4)
    left, right = streamed(inside[:30], outside[:80]), streamed(inside[30:], outside[80:])
    assert left.merge(right).compute() == streamed(inside, outside).compute()


def test_one_sided_scores_are_refused() -> None:
    meter = OutOfDistribution()
    meter.update(torch.zeros(3), out=True)
    with pytest.raises(ValueError, match="got 0 and 3"):
        meter.compute()
    with pytest.raises(ValueError, match="got 2 and 0"):
        detection(torch.zeros(2), torch.zeros(0))


def test_wrong_scores_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    meter = OutOfDistribution()
    with pytest.raises(ValueError, match=r"\[B\]"):
        meter.update(torch.zeros(3, 1), out=True)
    with pytest.raises(ValueError, match="floating-point"):
        meter.update(torch.zeros(3).long(), out=True)
    with pytest.raises(ValueError, match="finite"):
        detection(torch.tensor([torch.nan]), torch.zeros(1))
    broken = torch.tensor([0.0, torch.nan, torch.inf])
    with pytest.raises(ValueError, match="got 2"):
        meter.update(broken, out=False)
    monkeypatch.setattr("onefold.metrics.ood.readable", lambda _: False)  # as on a device
    meter.update(broken, out=False)
    meter.update(torch.zeros(1), out=True)
    with pytest.raises(ValueError, match="got 2"):
        meter.compute()


@pytest.mark.parametrize("cells", [0, 64, 1000, 2**31])
def test_wrong_cells_are_refused(cells: int) -> None:
    with pytest.raises(ValueError, match="power of two"):
        OutOfDistribution(cells)
