"""Which differences between an average and its members are worth a warning, and what it advises."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import onefold
from onefold.data import Arrays, loader_for
from onefold.engine import conduct
from onefold.engine.averaging import averaging_health, hurts, warning_of
from onefold.engine.reestimate import reestimate
from onefold.ensemble import batch_ensemble, collapse, subnetwork


def measured(acc: float, nll: float) -> dict[str, float]:
    return {"acc": acc, "nll": nll, "ece": 0.0}


def health(network: dict[str, float], again: dict[str, float] | None, *members: dict[str, float]) -> dict[str, Any]:
    told = {"collapsed": network, "collapsed_reestimated": again, "count": 100}
    return told | {"members": list(members) or [network, network]}


@pytest.mark.parametrize(
    ("network", "again", "count", "nll_error", "expected"),
    [
        (measured(0.99, 0.03), measured(1.0, 0.03), 100, 0.0, False),  # one example of 100
        (measured(0.90, 0.03), measured(1.0, 0.03), 100, 0.0, True),
        (measured(0.995, 0.03), measured(1.0, 0.03), 10_000, 0.0, True),
        (measured(1.0, 0.0012), measured(1.0, 0.0010), 100, 0.0, False),  # too little to matter
        (measured(1.0, 0.30), measured(1.0, 0.25), 100, 0.01, True),
        (measured(1.0, 0.30), measured(1.0, 0.25), 100, 0.03, False),  # may be chance
        (measured(1.0, 0.30), measured(1.0, 0.28), 100, 0.0, False),
        (measured(0.965, 0.1196), measured(0.96, 0.1021), 200, 0.0036, False),  # the README's example
    ],
)
def test_what_may_be_chance_is_not_worse(
    network: dict[str, float], again: dict[str, float], count: int, nll_error: float, expected: bool
) -> None:
    assert hurts(network, [again], count, nll_error) is expected
    errors = {"members": 0.0, "collapsed_reestimated": nll_error}
    told = warning_of(health(network, again) | {"count": count, "nll_errors": errors}, "val")
    assert (told is not None) is expected
    assert told is None or "lag behind" in told
    alone = health(network, None, again) | {"count": count, "nll_errors": {"members": nll_error}}
    assert (warning_of(alone, "val") is not None) is expected


def test_statistics_that_lose_accuracy_are_no_remedy() -> None:
    network = measured(0.965, 0.16)
    assert warning_of(health(network, measured(0.96, 0.10)), "val") is None
    assert warning_of(health(network, measured(0.965, 0.10)), "val") is not None


def test_the_error_comes_from_the_differences_on_single_examples(small: Any) -> None:
    student = batch_ensemble(small(), 3, "normal", generator=torch.Generator().manual_seed(5)).eval()
    draws = torch.Generator().manual_seed(1)
    x, y = torch.rand(70, 1, 4, 4, generator=draws), torch.randint(3, (70,), generator=draws)
    loader, seen = loader_for(Arrays(x, y), 16, train=False), torch.rand(40, 1, 4, 4, generator=draws)

    def losses(net: Any) -> Tensor:
        with torch.no_grad():
            return F.cross_entropy(net.eval()(x), y, reduction="none").double()

    collapsed = collapse(student)
    again = copy.deepcopy(collapsed)
    reestimate(again, [seen])
    members = torch.stack([losses(subnetwork(student, m)) for m in range(3)]).mean(0)
    found = averaging_health(student, loader, [seen], 3)["nll_errors"]
    for name, others in {"members": members, "collapsed_reestimated": losses(again)}.items():
        error = float((losses(collapsed) - others).std()) / math.sqrt(70)
        assert found[name] == pytest.approx(error, rel=1e-4), name
        assert error > 0
    assert averaging_health(student, loader, None, 3)["nll_errors"]["collapsed_reestimated"] == 0


NAMES = {False: ("--epochs", "--optim.batch-size", "--optim.weight-decay", "--optim.lr", "--optim.clip 1.0")}
NAMES[True] = ("epochs", "batch_size", "weight_decay", "lr", "clip=1.0")


@pytest.mark.parametrize("python", [False, True])
def test_advice_names_what_there_is_where_the_run_was_started(python: bool) -> None:
    good, bad = measured(0.92, 0.3), measured(0.5, 2.0)
    epochs, batch_size, weight_decay, lr, clip = NAMES[python]
    lag = warning_of(health(bad, good), "val", python=python)
    assert lag is not None
    assert f"({epochs}, or a smaller {batch_size})" in lag
    worse = warning_of(health(bad, None, good, good), "val", python=python)
    assert worse is not None
    assert f"a larger {weight_decay}" in worse
    assert f"a lower {lr}" in worse
    apart = warning_of(health(bad, bad, *(measured(acc, 0.3) for acc in (0.67, 0.23, 0.945))), "val", python=python)
    assert apart is not None
    assert "from ACC 23.00% to 94.50%: some diverged in training" in apart
    assert f"a lower learning rate ({lr}), or clip the gradient ({clip})" in apart
    assert "BatchNorm" not in apart
    assert weight_decay not in apart
    for told in (lag, worse, apart):
        assert not python or "--" not in told


@pytest.mark.parametrize("known", [False, True])
def test_a_run_knows_where_it_was_started(known: bool, make_job: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(onefold.engine.result, "warning_of", lambda *_, python: asked.append(python))
    conduct(make_job(known=known))
    assert asked == [not known]
