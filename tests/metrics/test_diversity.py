"""The paper's Div, against a double loop over pairs with torch.distributions."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import Categorical, kl_divergence

from onefold.metrics import DiversityMeter, diversity


def by_pairs(logits: Tensor) -> Tensor:
    members = [Categorical(logits=member) for member in logits.double()]
    total = torch.zeros(logits.shape[1], dtype=torch.float64)
    for p in members:
        for q in members:
            total += kl_divergence(p, q)
    return total / (len(members) * (len(members) - 1))


@given(
    members=st.integers(2, 5),
    batch=st.integers(1, 3),
    classes=st.sampled_from([2, 5, 1000]),
    dtype=st.sampled_from([torch.bfloat16, torch.float32, torch.float64]),
    seed=st.integers(0, 2**16),
)
@settings(deadline=None, max_examples=40)
def test_is_the_mean_over_ordered_pairs(members: int, batch: int, classes: int, dtype: torch.dtype, seed: int) -> None:
    logits = torch.randn(members, batch, classes, generator=torch.Generator().manual_seed(seed)).mul(3).to(dtype)
    result = diversity(logits)
    assert result.shape == (batch,)
    rtol = 1e-10 if dtype == torch.float64 else 1e-4
    torch.testing.assert_close(result.double(), by_pairs(logits), rtol=rtol, atol=1e-6)


@pytest.mark.parametrize("members", [2, 3, 5, 7])
def test_members_that_agree_have_none_exactly(members: int) -> None:
    one = torch.randn(100, 10, generator=torch.Generator().manual_seed(2)) * 10
    assert not diversity(one.expand(members, -1, -1)).any()


def test_is_never_negative_near_agreement() -> None:
    generator = torch.Generator().manual_seed(3)
    one = torch.randn(1, 20000, 10, generator=generator) * 5
    near = one + 1e-7 * torch.randn(4, 20000, 10, generator=generator)
    assert (diversity(near) >= 0).all()
    assert diversity(near).max() < 1e-6


def test_does_not_care_for_shifts_of_the_logits() -> None:
    logits = torch.randn(3, 4, 5, dtype=torch.float64)
    shifted = logits + torch.randn(3, 4, 1, dtype=torch.float64) * 10
    torch.testing.assert_close(diversity(shifted), diversity(logits))


def test_gradient_is_right() -> None:
    logits = torch.randn(3, 2, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(diversity, (logits,))


def test_traces_whole() -> None:
    logits = torch.randn(3, 4, 5, requires_grad=True)
    compiled = torch.compile(diversity, fullgraph=True, backend="aot_eager")
    (expected,) = torch.autograd.grad(diversity(logits).sum(), logits)
    (actual,) = torch.autograd.grad(compiled(logits).sum(), logits)
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("members", [0, 1])
def test_fewer_than_two_members_are_refused(members: int) -> None:
    with pytest.raises(ValueError, match=f"M = {members}"):
        diversity(torch.zeros(members, 2, 3))


def test_meter_is_the_mean_over_the_stream() -> None:
    logits = torch.randn(3, 10, 5, generator=torch.Generator().manual_seed(4))
    halves = [DiversityMeter(), DiversityMeter()]
    halves[0].update(logits[:, :1])
    halves[0].update(logits[:, 1:4])
    halves[1].update(logits[:, 4:])
    result = halves[0].merge(halves[1]).compute()
    assert result["diversity"] == pytest.approx(by_pairs(logits).mean().item(), rel=1e-6)
    assert result["count"] == 10


def test_meter_without_examples_and_with_broken_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    meter = DiversityMeter()
    with pytest.raises(ValueError, match="no examples"):
        meter.compute()
    logits = torch.zeros(2, 3, 4)
    logits[1, 2, 0] = torch.nan
    with pytest.raises(ValueError, match="NaN"):
        meter.update(logits)
    monkeypatch.setattr("onefold.types.readable", lambda _: False)  # as on a device
    meter.update(logits)
    with pytest.raises(ValueError, match="1 of 3"):
        meter.compute()
