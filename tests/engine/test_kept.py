"""Answers in a file are the answers, and what is evaluated from them is the same."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import onefold
from onefold.engine import conduct, kept
from onefold.metrics import evaluate_predictions
from onefold.run import RunFolder


def batches(sizes: list[int], classes: int = 7) -> list[tuple[Tensor, Tensor]]:
    draws = torch.Generator().manual_seed(0)
    return [
        (torch.randint(classes, (n,), generator=draws), torch.randn(n, classes, generator=draws).log_softmax(-1))
        for n in sizes
    ]


@pytest.mark.parametrize("sizes", [[5], [5, 5, 3], [1, 40, 2, 17, 9]])
@pytest.mark.parametrize("held", [0, 300, 1 << 20])
def test_all_batches_in_their_order(sizes: list[int], held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "HELD", held)
    given = batches(sizes)
    labels, logits = kept.kept(iter(given))
    assert torch.equal(labels, torch.cat([y for y, _ in given]))
    assert torch.equal(logits, torch.cat([z for _, z in given]))
    logits[0] = 0.0  # torch may write to what it is given
    gc.collect()  # a file that was left open would be a warning, which is an error here
    assert float(logits[0].sum()) == 0


def test_nothing_is_kept_of_nothing() -> None:
    labels, logits = kept.kept(iter([]))
    assert (labels.shape, labels.dtype) == ((0,), torch.int64)
    assert (logits.shape, logits.dtype) == ((0, 0), torch.float32)
    labels, logits = kept.kept(iter(batches([0, 0])))
    assert (labels.shape, logits.shape) == ((0,), (0, 7))


def test_no_more_than_so_much_is_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "HELD", 1000)
    held = kept.Kept()
    for labels, logits in batches([10] * 20):  # of 280 bytes
        held.add(labels, logits)
        assert len(held.logits) <= 1000
    assert (len(held.logits), held.rows) == (0, 200)
    assert len(held.joined()[1]) == 200


def test_metrics_do_not_depend_on_where_answers_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 6))
    test, val = ((torch.randn(n, 4), torch.randint(6, (n,))) for n in (130, 70))
    with torch.no_grad():
        wanted = evaluate_predictions(net(test[0]), test[1], val_logits=net(val[0]), val_labels=val[1])
    for held in (0, 1 << 28):
        monkeypatch.setattr(kept, "HELD", held)
        found = onefold.evaluate(net, test, calibrate_on=val, batch_size=16, device="cpu")
        assert found == pytest.approx(wanted, rel=1e-5)
    assert onefold.evaluate(net, test, batch_size=16, device="cpu") == pytest.approx(
        {name: value for name, value in wanted.items() if name not in ("cnll", "cece", "temperature")}, rel=1e-5
    )


def test_a_run_ends_with_the_same_predictions(make_job: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    for held in (0, 1 << 28):
        monkeypatch.setattr(kept, "HELD", held)
        results.append(conduct(make_job(), RunFolder(tmp_path / str(held)), {"recipe": 1}))
    assert results[0].metrics == results[1].metrics
    assert results[0].temperature == results[1].temperature
    for split in ("val", "test"):
        files = [(tmp_path / str(held) / "predictions" / f"{split}.npz").read_bytes() for held in (0, 1 << 28)]
        assert files[0] == files[1]
