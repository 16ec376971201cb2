from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._python_dispatch import TorchDispatchMode

from onefold.data import Arrays, CropFlip, loader_for
from onefold.data.augment import as_input
from onefold.engine import conduct, result
from onefold.engine.averaging import averaging_health, hurts, warning_of
from onefold.engine.reestimate import reestimate
from onefold.ensemble import batch_ensemble, collapse, subnetwork
from onefold.run import RunFolder


def batches(*sizes: int) -> list[Tensor]:
    draws = torch.Generator().manual_seed(3)
    return [torch.rand(size, 1, 4, 4, generator=draws, dtype=torch.float64) for size in sizes]


def test_statistics_are_weighted_means_over_batches(small: Any) -> None:
    net = small().double().train()
    before = copy.deepcopy(net)
    given = batches(8, 8, 5)
    assert reestimate(net, given) == 21
    with torch.no_grad():
        answers = [before.again(before.conv(x).relu()) for x in given]
    sizes = torch.tensor([8.0, 8.0, 5.0], dtype=torch.float64)
    # Every position of every example counts once in the mean: that of all batches together.
    torch.testing.assert_close(net.norm.running_mean, torch.cat(answers).mean((0, 2, 3)))
    each = torch.stack([a.transpose(0, 1).flatten(1).var(1) for a in answers])
    torch.testing.assert_close(net.norm.running_var, (sizes[:, None] * each).sum(0) / sizes.sum())
    assert not net.training
    assert not net.norm.training
    assert net.norm.momentum == before.norm.momentum
    for name, value in before.named_parameters():
        assert torch.equal(net.get_parameter(name), value)


def test_a_second_layer_sees_batch_statistics_of_the_first_and_no_dropout() -> None:
    net = nn.Sequential(
        nn.BatchNorm1d(3), nn.Dropout(0.9), nn.Linear(3, 4), nn.BatchNorm1d(4, momentum=None), nn.Linear(4, 2)
    )
    net = net.double()
    x = torch.randn(50, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 3 + 1
    state = torch.get_rng_state()
    reestimate(net, [x])
    assert torch.equal(torch.get_rng_state(), state)
    first, linear, second = net[0], net[2], net[3]
    assert isinstance(first, _BatchNorm)
    assert isinstance(second, _BatchNorm)
    normalised = (x - x.mean(0)) / (x.var(0, unbiased=False) + first.eps).sqrt()
    hidden = linear(normalised).detach()
    torch.testing.assert_close(second.running_mean, hidden.mean(0))
    torch.testing.assert_close(second.running_var, hidden.var(0))
    assert second.momentum is None


def test_nothing_to_estimate_from(small: Any) -> None:
    with pytest.raises(ValueError, match="at least one batch of two examples"):
        reestimate(small().double(), batches(1, 1))


def examples(count: int, seed: int) -> Arrays:
    draws = torch.Generator().manual_seed(seed)
    return Arrays(torch.rand(count, 1, 4, 4, generator=draws), torch.randint(3, (count,), generator=draws))


def test_health_is_what_each_network_answers_by_itself(small: Any) -> None:
    student = batch_ensemble(small(), 3, "normal", generator=torch.Generator().manual_seed(5)).eval()
    val, train = examples(70, 1), examples(40, 2)
    loader = loader_for(val, 16, train=False)
    found = averaging_health(student, loader, [train.x], 3)

    def plain(log_p: Tensor) -> tuple[float, float]:
        right = sum(int(row.argmax()) == int(y) for row, y in zip(log_p, val.y, strict=True))
        return right / 70, -float(sum(row[y] for row, y in zip(log_p.double(), val.y, strict=True))) / 70

    def answers(net: nn.Module) -> Tensor:
        with torch.no_grad():
            out: Tensor = net.eval()(val.x).log_softmax(-1)
        return out

    each = [answers(subnetwork(student, m)) for m in range(3)]
    collapsed = collapse(student)
    again = copy.deepcopy(collapsed)
    reestimate(again, [train.x])
    together = torch.stack(each).exp().mean(0).log()
    expected = [*each, together, answers(collapsed), answers(again)]
    measured = [*found["members"], found["ensemble"], found["collapsed"], found["collapsed_reestimated"]]
    for metrics, log_p in zip(measured, expected, strict=True):
        acc, nll = plain(log_p)
        assert metrics["acc"] == pytest.approx(acc)
        assert metrics["nll"] == pytest.approx(nll, rel=1e-5)
    assert found["count"] == 70
    assert averaging_health(student, loader, None, 3)["collapsed_reestimated"] is None


class Largest(TorchDispatchMode):
    """The most numbers that a normalisation wrote."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if "batch_norm" in str(func):
            self.numbers = max(self.numbers, out[0].numel())
        return out


def test_members_are_asked_about_no_more_at_once_than_the_collapsed_network(small: Any) -> None:
    student = batch_ensemble(small(), 4, "normal", generator=torch.Generator().manual_seed(5)).eval()
    loader = loader_for(examples(70, 1), 16, train=False)
    with Largest() as of_all:
        averaging_health(student, loader, None, 3)
    net = collapse(student).eval()
    with torch.no_grad(), Largest() as of_one:
        for x, _ in loader.batches():
            net(x)
    assert of_all.numbers == of_one.numbers > 0


MEMBERS = [{"acc": 0.90, "nll": 0.30, "ece": 0.02}, {"acc": 0.92, "nll": 0.34, "ece": 0.02}]


@pytest.mark.parametrize(
    ("acc", "nll", "expected"),
    [
        (0.91, 0.32, False),
        (0.95, 0.353, True),  # more than 10% above 0.32
        (0.95, 0.351, False),
        (0.8814, 0.32, True),  # two standard errors of 0.91 over 1,000 are 0.0181
        (0.8925, 0.32, False),
    ],
)
def test_the_rule(acc: float, nll: float, expected: bool) -> None:
    assert hurts({"acc": acc, "nll": nll, "ece": 0.0}, MEMBERS, 1000) is expected


def test_advice_follows_from_what_helps() -> None:
    good, bad = {"acc": 0.92, "nll": 0.3, "ece": 0.0}, {"acc": 0.5, "nll": 2.0, "ece": 0.0}
    health: dict[str, Any] = {"members": MEMBERS, "count": 1000, "collapsed": good, "collapsed_reestimated": bad}
    assert warning_of(health, "val") is None
    told = warning_of(health | {"collapsed": bad, "collapsed_reestimated": good}, "val")
    assert told is not None
    assert "re-estimating BatchNorm statistics on training images fixes this" in told
    assert "weight-decay" not in told
    told = warning_of(health | {"collapsed": bad}, "val")
    assert told is not None
    assert "ACC 50.00%" in told
    assert all(word in told for word in ("--optim.weight-decay", "--optim.lr", "--epochs", "not enough"))


def test_statistics_that_hurt_members_and_average_alike_are_told() -> None:
    """After few steps, say: nobody is worse than the others, and all are bad."""
    good, bad = {"acc": 0.92, "nll": 0.3, "ece": 0.0}, {"acc": 0.5, "nll": 2.0, "ece": 0.0}
    health: dict[str, Any] = {"members": [bad, bad], "count": 1000, "collapsed": bad, "collapsed_reestimated": good}
    told = warning_of(health, "val")
    assert told is not None
    assert "lag behind the weights: on val the network has ACC 50.00% and NLL 2.0000, but ACC 92.00%" in told
    assert "--epochs" in told
    assert "onefold.engine.reestimate.reestimate(" in told
    for again in (None, bad, {"acc": 0.49, "nll": 1.99, "ece": 0.0}):
        assert warning_of(health | {"collapsed_reestimated": again}, "val") is None


@pytest.mark.parametrize(
    ("left_out", "split", "count"), [((), "val", 30), (("val",), "test", 40), (("val", "test"), "train", 60)]
)
def test_every_run_whose_members_are_averaged_ends_with_it(
    make_job: Any, tmp_path: Path, left_out: tuple[str, ...], split: str, count: int
) -> None:
    job = make_job(**dict.fromkeys(left_out))
    conduct(job, RunFolder(tmp_path), {"recipe": 1})
    found = json.loads((tmp_path / "measurements" / "health.json").read_text())
    assert (found["split"], found["count"], len(found["members"])) == (split, count, 2)
    assert found["collapsed_reestimated"].keys() == {"acc", "nll", "ece"}


@pytest.mark.parametrize("method", ["be", "kd"])
def test_and_no_other_does(make_job: Any, tmp_path: Path, method: str) -> None:
    conduct(make_job(method, "none"), RunFolder(tmp_path), {"recipe": 1})
    assert not (tmp_path / "measurements").exists()


def test_statistics_are_those_of_images_as_training_sees_them(make_job: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Tensor] = []

    def recorded(student: Any, loader: Any, inputs: Any, *rest: Any) -> Any:
        seen.extend(inputs)
        return averaging_health(student, loader, seen, *rest)

    monkeypatch.setattr(result, "averaging_health", recorded)
    job = make_job(augment=CropFlip(2))
    conduct(job)
    given = as_input(job.train.x)
    found = torch.cat(seen)
    assert len(found) == len(given)
    whole = sum(any(torch.equal(x, y) for y in given) for x in found)
    assert whole < len(given) / 4  # of 50 crops and mirrors of an image one is the image itself
