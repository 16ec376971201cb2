"""The ensemble's prediction and its entropy, against plain loops and scipy."""

from __future__ import annotations

import math

import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from onefold.metrics import log_mean_probabilities, predictive_entropy

FLOATS = st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64])


def test_is_the_log_of_the_mean_softmax_by_a_plain_loop() -> None:
    logits = torch.randn(3, 5, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 4
    result = log_mean_probabilities(logits)
    for b in range(5):
        for k in range(7):
            total = 0.0
            for m in range(3):
                row = [math.exp(v) for v in logits[m, b].tolist()]
                total += row[k] / sum(row)
            assert result[b, k].item() == pytest.approx(math.log(total / 3), rel=1e-12)


@given(
    members=st.integers(1, 5),
    batch=st.integers(0, 4),
    classes=st.sampled_from([2, 3, 1000]),
    dtype=FLOATS,
    seed=st.integers(0, 2**16),
)
@settings(deadline=None, max_examples=40)
def test_shapes_dtypes_and_a_sum_of_one(members: int, batch: int, classes: int, dtype: torch.dtype, seed: int) -> None:
    logits = torch.randn(members, batch, classes, generator=torch.Generator().manual_seed(seed)).mul(9).to(dtype)
    result = log_mean_probabilities(logits)
    assert result.shape == (batch, classes)
    assert result.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert (result <= 0).all()
    torch.testing.assert_close(result.exp().sum(-1), torch.ones(batch, dtype=result.dtype))
    torch.testing.assert_close(result.exp(), logits.to(result.dtype).softmax(-1).mean(0), rtol=1e-5, atol=1e-7)
    entropy = predictive_entropy(result)
    expected = scipy.stats.entropy(result.double().exp().numpy(), axis=-1)
    torch.testing.assert_close(entropy.double(), torch.from_numpy(expected), rtol=1e-5, atol=1e-6)


def test_one_member_predicts_its_log_softmax() -> None:
    logits = torch.randn(1, 4, 10)
    assert torch.equal(log_mean_probabilities(logits), logits[0].log_softmax(-1))


@pytest.mark.parametrize("members", [2, 3, 5, 7])
def test_members_that_agree_predict_exactly_what_each_does(members: int) -> None:
    one = torch.randn(64, 10, generator=torch.Generator().manual_seed(1)) * 20
    assert torch.equal(log_mean_probabilities(one.expand(members, -1, -1)), one.log_softmax(-1))


def test_hopeless_classes_keep_their_logarithm() -> None:
    logits = torch.tensor([[[0.0, -500.0]], [[0.0, -500.0 - math.log(3)]]])
    expected = -500 + math.log((1 + 1 / 3) / 2)
    assert log_mean_probabilities(logits)[0, 1].item() == pytest.approx(expected, rel=1e-6)


def test_impossible_classes_stay_impossible() -> None:
    logits = torch.tensor([[[3e38, -3e38]], [[3e38, -3e38]]])  # their difference is beyond float32
    result = log_mean_probabilities(logits)
    assert result.tolist() == [[0.0, -math.inf]]
    assert predictive_entropy(result).item() == 0


def test_gradient_is_right() -> None:
    logits = torch.randn(3, 2, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(log_mean_probabilities, (logits,))


def test_no_members_are_refused() -> None:
    with pytest.raises(ValueError, match="M = 0"):
        log_mean_probabilities(torch.zeros(0, 2, 3))


def test_entropy_counts_impossible_classes_as_nothing_also_in_the_gradient() -> None:
    log_p = torch.tensor([[0.0, -math.inf], [math.log(0.5), math.log(0.5)]], requires_grad=True)
    entropy = predictive_entropy(log_p)
    assert entropy.tolist() == pytest.approx([0.0, math.log(2)])
    (gradient,) = torch.autograd.grad(entropy.sum(), log_p)
    assert gradient.isfinite().all()
