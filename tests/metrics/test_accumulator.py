"""Merging, storing and moving of streamed sums."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

from onefold.metrics import Classification, DiversityMeter, OutOfDistribution


@given(cut=st.integers(0, 40), pieces=st.integers(1, 40), seed=st.integers(0, 2**16))
@settings(deadline=None, max_examples=25)
def test_two_halves_merged_are_the_whole(cut: int, pieces: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits, labels = torch.randn(40, 5, generator=generator) * 4, torch.randint(5, (40,), generator=generator)
    whole, left, right = Classification(5), Classification(5), Classification(5)
    for i in range(0, 40, pieces):
        whole.update(logits[i : i + pieces], labels[i : i + pieces])
    left.update(logits[:cut], labels[:cut])
    right.update(logits[cut:], labels[cut:])
    before = right.state()
    left.merge(right)
    assert left.compute() == pytest.approx(whole.compute(), rel=1e-13, abs=1e-15)
    assert torch.equal(left.reliability().count, whole.reliability().count)
    assert torch.equal(left.state()["cells"][:, 0], whole.state()["cells"][:, 0])
    assert all(torch.equal(before[name], sums) for name, sums in right.state().items())


def test_state_goes_out_and_in() -> None:
    one, other = Classification(3), Classification(3)
    one.update(torch.randn(7, 3), torch.zeros(7).long())
    state = one.state()
    expected = one.compute()
    one.update(torch.randn(7, 3), torch.zeros(7).long())
    assert other.load_state(state).compute() == expected
    other.update(torch.randn(7, 3), torch.zeros(7).long())
    assert state["totals"][0] == 7


def test_unlike_ones_do_not_merge() -> None:
    with pytest.raises(ValueError, match="same arguments"):
        Classification(3).merge(Classification(3, bins=10))
    with pytest.raises(ValueError, match="same arguments"):
        Classification(3).load_state(Classification(4).state())
    with pytest.raises(ValueError, match="expected a Classification, got a DiversityMeter"):
        Classification(3).merge(DiversityMeter())  # type: ignore[arg-type]


def test_works_in_and_out_of_inference_mode() -> None:
    with torch.inference_mode():
        meter = Classification(3)
        logits, labels = torch.randn(4, 3), torch.zeros(4).long()
        meter.update(logits, labels)
        meter.to("cpu")
    meter.update(logits, labels)
    assert meter.merge(Classification(3)).compute()["count"] == 8


def test_updates_never_look_at_values() -> None:
    # The meta device has none: whatever would wait for a real one fails here.
    logits, labels = torch.empty(3, 4, 5, device="meta"), torch.empty(4, dtype=torch.long, device="meta")
    classification, meter, ood = Classification(5, device="meta"), DiversityMeter("meta"), OutOfDistribution()
    classification.update(logits, labels)
    classification.update(logits[0].bfloat16(), labels.int())
    meter.update(logits)
    ood.update(logits[0, 0], out=True)
    assert classification.device == meter.device == ood.device == torch.device("meta")
    with pytest.raises(RuntimeError):
        meter.compute()


def test_takes_no_gradient_along() -> None:
    meter = Classification(3)
    meter.update(torch.randn(4, 3, requires_grad=True), torch.zeros(4).long())
    assert not any(sums.requires_grad for sums in meter.state().values())


def test_all_reduce_alone_and_in_a_group_of_one(tmp_path: Path) -> None:
    meter = DiversityMeter()
    meter.update(torch.randn(2, 3, 4))
    expected = meter.compute()
    assert meter.all_reduce().compute() == expected
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        assert meter.all_reduce().compute() == expected
    finally:
        dist.destroy_process_group()


def test_all_reduce_sums_every_part_of_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    meter = Classification(3)
    meter.update(torch.randn(4, 3), torch.zeros(4).long())
    single, metrics = meter.state(), meter.compute()
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "all_reduce", lambda sums, op, group: sums.mul_(2))  # noqa: ARG005
    meter.all_reduce()
    assert all(torch.equal(sums, 2 * single[name]) for name, sums in meter.state().items())
    assert meter.compute() == pytest.approx(metrics | {"count": 8.0})
