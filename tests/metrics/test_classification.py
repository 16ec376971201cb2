"""The classification metrics, against plain loops, scikit-learn and torchmetrics."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, log_loss
from torch import Tensor
from torchmetrics.functional.classification import binary_calibration_error, multiclass_calibration_error

from onefold.metrics import Classification, adaptive_ece, log_mean_probabilities


def draw(members: int, batch: int, classes: int, seed: int, scale: float = 3.0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (batch,), generator=generator)
    logits = torch.randn(members, batch, classes, generator=generator, dtype=torch.float64) * scale
    return logits + scale * torch.nn.functional.one_hot(labels, classes), labels


def bin_of(p: float, bins: int, dtype: torch.dtype) -> int:
    scalar = np.float32 if dtype == torch.float32 else np.float64
    return next(b for b in range(bins) if p <= float(scalar(b + 1) / scalar(bins)))


def ece(pairs: list[tuple[float, bool]], bins: int, dtype: torch.dtype) -> float:
    total = 0.0
    for b in range(bins):
        inside = [(p, hit) for p, hit in pairs if bin_of(p, bins, dtype) == b]
        if inside:
            confidence = sum(p for p, _ in inside) / len(inside)
            accuracy = sum(hit for _, hit in inside) / len(inside)
            total += len(inside) / len(pairs) * abs(accuracy - confidence)
    return total


def by_loop(log_p: Tensor, labels: Tensor, bins: int) -> dict[str, float]:
    p, y, (n, classes) = log_p.exp().tolist(), labels.tolist(), log_p.shape
    top = [(max(row), row.index(max(row)) == label) for row, label in zip(p, y, strict=True)]
    each = [[(p[i][k], y[i] == k) for i in range(n)] for k in range(classes)]
    return {
        "acc": sum(hit for _, hit in top) / n,
        "nll": -sum(log_p[i, y[i]].item() for i in range(n)) / n,
        "ece": ece(top, bins, log_p.dtype),
        "cwece": sum(ece(pairs, bins, log_p.dtype) for pairs in each) / classes,
        "brier": sum((p[i][k] - (y[i] == k)) ** 2 for i in range(n) for k in range(classes)) / n,
        "entropy": -sum(q * math.log(q) for row in p for q in row if q) / n,
        "count": n,
    }


@given(
    members=st.sampled_from([None, 1, 2, 4]),
    batch=st.integers(1, 12),
    classes=st.sampled_from([2, 3, 10]),
    bins=st.sampled_from([1, 10, 15]),
    dtype=st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64]),
    integer=st.sampled_from([torch.uint8, torch.int32, torch.int64]),
    seed=st.integers(0, 2**16),
)
@settings(deadline=None, max_examples=60)
def test_is_the_plain_loop(
    members: int | None,
    batch: int,
    classes: int,
    bins: int,
    dtype: torch.dtype,
    integer: torch.dtype,
    seed: int,
) -> None:
    logits, labels = draw(members or 1, batch, classes, seed)
    logits, labels = logits.to(dtype), labels.to(integer)
    meter = Classification(classes, bins)
    meter.update(logits[0] if members is None else logits, labels)
    result = meter.compute()
    expected = by_loop(log_mean_probabilities(logits), labels, bins)
    rel = 1e-10 if dtype == torch.float64 else 1e-5
    assert {k: result[k] for k in expected} == pytest.approx(expected, rel=rel, abs=rel)
    assert set(result) == {*expected, "ace"}


def test_a_thousand_classes_one_example() -> None:
    logits, labels = draw(1, 1, 1000, seed=5)
    meter = Classification(1000)
    meter.update(logits[0], labels)
    result, expected = meter.compute(), by_loop(logits[0].log_softmax(-1), labels, 15)
    assert {k: result[k] for k in expected} == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("classes", [2, 10, 1000])
def test_agrees_with_libraries_on_confidences_below_one(classes: int) -> None:
    logits, labels = draw(1, 500, classes, seed=6, scale=1.5)
    p = logits[0].softmax(-1)
    assert p.max() < 1
    meter = Classification(classes)
    meter.update(logits[0], labels)
    result = meter.compute()
    assert result["acc"] == pytest.approx(accuracy_score(labels, p.argmax(-1)))
    assert result["nll"] == pytest.approx(log_loss(labels, p / p.sum(-1, keepdim=True), labels=range(classes)))
    theirs = multiclass_calibration_error(p, labels, num_classes=classes, n_bins=15)
    assert result["ece"] == pytest.approx(theirs.item(), abs=1e-7)
    few = range(min(classes, 20))  # the others are equal by symmetry, and slow over there
    each = [binary_calibration_error(p[:, k].contiguous(), (labels == k).long(), n_bins=15).item() for k in few]
    mine = meter.state()["classwise"].abs().sum(-1) / 500
    assert mine[: len(few)].tolist() == pytest.approx(each, abs=1e-7)
    assert result["cwece"] == pytest.approx(mine.mean().item())


def test_confidence_of_exactly_one_is_in_the_last_bin() -> None:
    # 1.0 and wrong, 0.97 and right: one bin for us, two for torchmetrics.
    logits = torch.tensor([[200.0, 0.0], [math.log(0.97 / 0.03), 0.0]])
    labels = torch.tensor([1, 0])
    meter = Classification(2)
    meter.update(logits, labels)
    confidence = logits.softmax(-1).amax(-1)
    assert confidence[0] == 1
    expected = ece([(confidence[0].item(), False), (confidence[1].item(), True)], 15, torch.float32)
    assert meter.compute()["ece"] == pytest.approx(expected) == pytest.approx(abs(0.5 - 0.985))
    theirs = multiclass_calibration_error(logits.softmax(-1), labels, num_classes=2, n_bins=15)
    assert theirs.item() == pytest.approx((1 + 0.03) / 2, abs=1e-6)
    assert meter.reliability().count.tolist() == [0] * 14 + [2]


def test_probability_of_exactly_zero_is_in_the_first_bin() -> None:
    meter = Classification(2)
    meter.update(torch.tensor([[200.0, 0.0]]), torch.tensor([0]))  # probabilities 1 and 0
    classwise = meter.state()["classwise"]
    assert meter.compute()["cwece"] == 0
    meter.update(torch.tensor([[200.0, 0.0]]), torch.tensor([1]))
    classwise = meter.state()["classwise"]
    assert classwise[1, 0] == -1
    assert classwise[0, 14] == 1
    assert meter.compute()["nll"] == pytest.approx(100)


def test_reliability_is_what_ece_sums() -> None:
    logits, labels = draw(1, 300, 5, seed=7, scale=1.0)
    meter = Classification(5)
    meter.update(logits, labels)
    bins = meter.reliability()
    assert bins.count.sum() == 300
    assert bins.accuracy.isnan().tolist() == (bins.count == 0).tolist()
    gap = (bins.accuracy - bins.confidence).abs().nan_to_num() * bins.count / 300
    assert meter.compute()["ece"] == pytest.approx(gap.sum().item())
    used = bins.count > 0
    upper = torch.arange(1, 16) / 15
    assert (bins.confidence[used] <= upper[used]).all()
    assert (bins.confidence[used] > upper[used] - 1 / 15).all()


def order_bound(meter: Classification, bins: int) -> float:
    """n / 2N summed over the borders: what the order inside the groups on them can matter."""
    mass = meter.state()["cells"][:, 0]
    borders = torch.arange(1, bins, dtype=torch.float64) * mass.sum() / bins
    return float(mass[torch.searchsorted(mass.cumsum(0), borders)].sum() / 2 / mass.sum())


@pytest.mark.parametrize(("n", "scale"), [(10, 1.0), (1000, 1.0), (5000, 4.0), (5000, 12.0)])
def test_streamed_adaptive_ece_is_near_the_exact_one(n: int, scale: float) -> None:
    logits, labels = draw(1, n, 10, seed=8, scale=scale)
    logits = logits[0].float()
    meter = Classification(10)
    for i in range(0, n, 97):
        meter.update(logits[i : i + 97], labels[i : i + 97])
    confidence, predicted = logits.softmax(-1).max(-1)
    exact = adaptive_ece(logits.log_softmax(-1).exp().amax(-1), predicted == labels)
    # Confidences are a rounding apart between softmax and exp(log_softmax).
    assert exact == pytest.approx(adaptive_ece(confidence, predicted == labels), abs=1e-3)
    difference = abs(meter.compute()["ace"] - exact)
    assert difference <= order_bound(meter, 15) * (1 + 2**-12) + 1e-6
    assert difference < 1e-3


def test_streamed_adaptive_ece_is_exact_for_ties() -> None:
    levels = torch.tensor([0.55, 0.7, 0.9, 0.99, 0.99999, 1 - 2**-24], dtype=torch.float64)
    level = torch.randint(6, (999,), generator=torch.Generator().manual_seed(9))
    p = levels[level]
    logits = torch.stack([p.logit(), torch.zeros_like(p)], -1)
    labels = level % 2  # right and wrong in turns: levels in one group would even out
    meter = Classification(2)
    meter.update(logits, labels)
    confidence = logits.log_softmax(-1).exp().amax(-1)
    assert meter.compute()["ace"] == pytest.approx(adaptive_ece(confidence, labels == 0), abs=1e-9)


def test_log_probabilities_are_as_good_as_logits() -> None:
    logits, labels = draw(3, 50, 4, seed=11)
    one, other = Classification(4), Classification(4)
    one.update(logits, labels)
    other.update(log_mean_probabilities(logits), labels)
    assert one.compute() == pytest.approx(other.compute(), rel=1e-12)


def test_memory_layout_does_not_matter() -> None:
    logits, labels = draw(3, 50, 4, seed=12)
    one, other = Classification(4), Classification(4)
    one.update(logits, labels)
    other.update(logits.permute(2, 1, 0).contiguous().permute(2, 1, 0), labels)
    assert one.compute() == pytest.approx(other.compute(), rel=1e-12)


def test_accuracy_is_the_logits_own_where_probabilities_tie() -> None:
    logits = torch.zeros(1, 1000)
    logits[0, 700] = 1e-9  # lost beside log 1000
    meter = Classification(1000)
    meter.update(logits, torch.tensor([700]))
    assert meter.compute()["acc"] == 1


@pytest.mark.parametrize(
    ("logits", "labels", "message"),
    [
        (torch.zeros(2), torch.zeros(2).long(), r"\[B, K\] or \[M, B, K\]"),
        (torch.zeros(2, 4), torch.zeros(2).long(), "expected 3 classes, got 4"),
        (torch.zeros(2, 3), torch.zeros(3).long(), r"expected shape \[2\]"),
        (torch.zeros(2, 3), torch.zeros(2), "integer"),
        (torch.zeros(2, 3).long(), torch.zeros(2).long(), "floating-point"),
        (torch.full((2, 3), torch.inf), torch.zeros(2).long(), "infinite"),
        (torch.zeros(2, 3), torch.tensor([0, 3]), "0 to 2"),
        (torch.zeros(0, 2, 3), torch.tensor([0, 1]), "M = 0"),
    ],
)
def test_wrong_input_is_refused_at_once(logits: Tensor, labels: Tensor, message: str) -> None:
    meter = Classification(3)
    with pytest.raises(ValueError, match=message):
        meter.update(logits, labels)
    with pytest.raises(ValueError, match="no examples"):
        meter.compute()


def test_wrong_values_on_a_device_are_refused_by_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onefold.types.readable", lambda _: False)
    logits = torch.zeros(2, 5, 3)
    logits[0, 1, 2], logits[1, 1, 0], logits[1, 4, 0] = torch.nan, torch.inf, -torch.inf
    meter = Classification(3)
    meter.update(logits, torch.zeros(5).long())
    with pytest.raises(ValueError, match="2 of 5"):
        meter.compute()
    with pytest.raises(ValueError, match="2 of 5"):
        meter.reliability()
    meter.reset().update(torch.zeros(4, 3), torch.tensor([0, -1, 3, 1000]))
    with pytest.raises(ValueError, match="labels: expected classes 0 to 2, got 3 of 4"):
        meter.compute()


@pytest.mark.parametrize("arguments", [{"classes": 1}, {"classes": 3, "bins": 0}])
def test_wrong_arguments_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=list(arguments)[-1]):
        Classification(**arguments)


def test_an_empty_batch_adds_nothing() -> None:
    meter = Classification(3)
    meter.update(torch.zeros(0, 3), torch.zeros(0).long())
    meter.update(torch.zeros(2, 3), torch.zeros(2).long())
    assert meter.compute()["count"] == 2
