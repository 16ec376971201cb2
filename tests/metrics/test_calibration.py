"""The fitted temperature, against scipy and a grid; the calibrated metrics."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from torch import Tensor

from onefold.metrics import (
    Classification,
    calibration,
    evaluate_predictions,
    fit_temperature,
    log_mean_probabilities,
    tempered,
    warning_of_temperature,
)


def draw(n: int, classes: int, sharpness: float, seed: int) -> tuple[Tensor, Tensor]:
    """Labels drawn from softmax(z), logits `sharpness` z: the right temperature is near `sharpness`."""
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(n, classes, generator=generator, dtype=torch.float64) * 2
    labels = torch.multinomial(z.softmax(-1), 1, generator=generator)[:, 0]
    return z * sharpness, labels


def loss(z: Tensor, labels: Tensor, log_t: float) -> float:
    return torch.nn.functional.cross_entropy(z.double() / math.exp(log_t), labels).item()


def slope(z: Tensor, labels: Tensor, temperature: float) -> float:
    log_t = torch.tensor(math.log(temperature), dtype=torch.float64, requires_grad=True)
    value = torch.nn.functional.cross_entropy(z.double() / log_t.exp(), labels)
    (gradient,) = torch.autograd.grad(value, log_t)
    return gradient.item()


@given(
    n=st.integers(20, 80),
    classes=st.sampled_from([2, 3, 10]),
    log_sharpness=st.floats(-4, 4),
    seed=st.integers(0, 2**16),
)
@settings(deadline=None, max_examples=40)
def test_no_other_temperature_is_better(n: int, classes: int, log_sharpness: float, seed: int) -> None:
    z, labels = draw(n, classes, math.exp(log_sharpness), seed)
    temperature = fit_temperature(z, labels)
    if bool((z.argmax(1) == labels).all()):  # none is best
        assert temperature == 1
        return
    assert 1e-3 <= temperature <= 1e3
    best = loss(z, labels, math.log(temperature))
    grid = np.linspace(math.log(1e-3), math.log(1e3), 400)
    assert best <= min(loss(z, labels, s) for s in grid) + 1e-12
    if 1e-3 < temperature < 1e3:
        assert abs(slope(z, labels, temperature)) < 1e-11


@pytest.mark.parametrize("classes", [2, 10, 1000])
@pytest.mark.parametrize("sharpness", [0.02, 1.0, 40.0])
def test_is_what_scipy_finds(classes: int, sharpness: float) -> None:
    z, labels = draw(400, classes, sharpness, seed=1)
    fitted = fit_temperature(z, labels)
    near = (math.log(sharpness) - 2, math.log(sharpness) + 2)
    search: Any = minimize_scalar
    theirs = search(lambda s: loss(z, labels, s), bounds=near, method="bounded", options={"xatol": 1e-9})
    assert math.log(fitted) == pytest.approx(theirs.x, abs=1e-6)
    assert fitted == pytest.approx(sharpness, rel=0.3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_low_precision_logits_are_fitted_in_float64(dtype: torch.dtype) -> None:
    z, labels = draw(300, 5, 3.0, seed=2)
    low = z.to(dtype)
    assert fit_temperature(low, labels.to(torch.int32)) == pytest.approx(
        fit_temperature(low.double(), labels), rel=1e-12
    )


def test_members_share_the_temperature_of_their_mean() -> None:
    z, labels = draw(200, 4, 5.0, seed=3)
    members = torch.stack([z + torch.randn(z.shape, generator=torch.Generator().manual_seed(m)) for m in range(3)])
    expected = fit_temperature(log_mean_probabilities(members), labels)
    assert fit_temperature(members, labels) == pytest.approx(expected, rel=1e-10)
    assert fit_temperature(z[None], labels) == pytest.approx(fit_temperature(z, labels), rel=1e-12)


def test_pieces_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    z, labels = draw(100, 4, 2.0, seed=4)
    members = torch.stack([z, z.flip(0) * 0.1])
    whole = fit_temperature(members, labels), evaluate_predictions(members, labels)
    monkeypatch.setattr(calibration, "_VALUES", 8 * 7)
    assert fit_temperature(members, labels) == pytest.approx(whole[0], rel=1e-12)
    assert evaluate_predictions(members, labels) == pytest.approx(whole[1], rel=1e-12)


def test_where_the_loss_falls_for_ever() -> None:
    labels = torch.arange(4) % 2
    right = torch.nn.functional.one_hot(labels, 2).float()
    assert fit_temperature(-right, labels) == 1e3
    assert fit_temperature(right * 1e30, 1 - labels) == 1e3
    # So small that 0.001 is too warm for them, and one is wrong: a best one is there, but beyond.
    minute = 1e-6 * torch.cat([right, right, -right[:1]])
    assert fit_temperature(minute, torch.cat([labels, labels, labels[:1]])) == 1e-3


def test_no_finite_temperature_is_best_where_every_answer_is_right() -> None:
    """The network is left as it is: at 0.001 one wrong answer of the test split costs a thousand times its margin."""
    labels = torch.arange(4) % 2
    right = torch.nn.functional.one_hot(labels, 2).float()
    tied = torch.cat([right, torch.zeros(1, 2)])
    for logits in (right, 1e-9 * right, 1e30 * right, right[:1], torch.zeros(4, 2), tied):
        assert fit_temperature(logits, torch.cat([labels, labels[:1]])[: len(logits)]) == 1.0
    assert fit_temperature(torch.stack([right, 2 * right]), labels) == 1.0  # members
    test = torch.tensor([[3.0, 0.0], [0.0, 3.0], [3.0, 0.0]]), torch.tensor([0, 1, 1])
    found = evaluate_predictions(*test, val_logits=right, val_labels=labels)
    assert found["cnll"] == pytest.approx(found["nll"])


def test_a_temperature_that_is_best_is_never_taken_for_one_that_is_not() -> None:
    """A network that is as sure as it is often right: T = 1 is best."""
    for right in range(2, 10):  # answers for each wrong one
        z = torch.tensor([[math.log(right), 0.0]] * (right + 1), dtype=torch.float64)
        fitted = fit_temperature(z, torch.tensor([0] * right + [1]))
        assert fitted == pytest.approx(1, abs=1e-12)
        assert fitted != 1
        assert warning_of_temperature(fitted) is None


def test_a_temperature_that_is_not_told_is_warned_of() -> None:
    labels = torch.arange(4) % 2
    right = torch.nn.functional.one_hot(labels, 2).float()
    some = torch.cat([right, -right[:1]])
    told = str(warning_of_temperature(fit_temperature(right, labels)))
    assert told.startswith("the temperature is 1, which leaves the network as it is: every answer")
    assert "tell nothing of its labels" in str(warning_of_temperature(fit_temperature(-right, labels)))
    assert "the lowest that is tried" in str(warning_of_temperature(1e-3))  # of folders from before
    for temperature in (fit_temperature(some, torch.cat([labels, labels[:1]])), None):
        assert warning_of_temperature(temperature) is None


def test_a_temperature_that_makes_the_test_nll_clearly_worse_is_warned_of() -> None:
    harm = "makes the NLL of the test split worse by more than a tenth"
    assert harm in str(warning_of_temperature(0.5, {"nll": 0.40, "cnll": 0.45}))
    for metrics in ({"nll": 0.40, "cnll": 0.43}, {"nll": 0.40}, {}, None):
        assert warning_of_temperature(0.5, metrics) is None


def test_finds_its_way_from_far_away() -> None:
    # One right answer with an enormous margin beside many with a small one, and one wrong: Newton overshoots.
    z = torch.tensor([[1e4, 0.0], [15.0, 0.0], *[[1.0, 0.0]] * 20], dtype=torch.float64)
    labels = torch.tensor([0, 1, *[0] * 20])
    fitted = fit_temperature(z, labels)
    assert abs(slope(z, labels, fitted)) < 1e-11
    assert 20 < fitted < 1000


def test_no_validation_data_has_a_plain_error() -> None:
    with pytest.raises(ValueError, match=r"no validation data.*give a validation set"):
        fit_temperature(torch.zeros(0, 3), torch.zeros(0).long())
    with pytest.raises(ValueError, match="no validation data"):
        evaluate_predictions(
            torch.zeros(2, 3),
            torch.zeros(2).long(),
            val_logits=torch.zeros(0, 3),
            val_labels=torch.zeros(0).long(),
        )


def test_wrong_input_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    z, labels = torch.zeros(2, 3), torch.zeros(2).long()
    with pytest.raises(ValueError, match="both or neither"):
        evaluate_predictions(z, labels, val_logits=z)
    with pytest.raises(ValueError, match="val_logits: expected 3 classes, got 4"):
        evaluate_predictions(z, labels, val_logits=torch.zeros(2, 4), val_labels=labels)
    with pytest.raises(ValueError, match="labels"):
        fit_temperature(z, labels + 3)
    with pytest.raises(ValueError, match="NaN"):
        fit_temperature(z / 0, labels)
    with pytest.raises(ValueError, match="temperature"):
        tempered(z, 0.0)
    monkeypatch.setattr("onefold.types.readable", lambda _: False)  # as on a device
    for bad in (torch.nan, torch.inf, -torch.inf):
        with pytest.raises(ValueError, match="finite validation logits"):
            fit_temperature(torch.tensor([[0.0, bad, 1.0]]), labels[:1])


@pytest.mark.parametrize("members", [None, 1, 3])
def test_calibrated_metrics_are_those_at_the_temperature(members: int | None) -> None:
    z, labels = draw(600, 6, 4.0, seed=5)
    if members:
        noise = torch.randn(members, *z.shape, generator=torch.Generator().manual_seed(6), dtype=z.dtype)
        z = z + noise
    test, val = (z[..., :300, :], labels[:300]), (z[..., 300:, :], labels[300:])
    result = evaluate_predictions(*test, val_logits=val[0], val_labels=val[1])
    plain = evaluate_predictions(*test)
    assert set(result) == set(plain) | {"cnll", "cece", "temperature"}
    assert {name: result[name] for name in plain} == plain
    assert result["temperature"] == fit_temperature(*val)
    prediction = test[0] if members is None else log_mean_probabilities(test[0])
    meter = Classification(6)
    meter.update(prediction / result["temperature"], labels[:300])
    assert result["cnll"] == pytest.approx(meter.compute()["nll"], rel=1e-10)
    assert result["cece"] == pytest.approx(meter.compute()["ece"], rel=1e-10)
    assert result["cnll"] < result["nll"]
    assert meter.compute()["acc"] == result["acc"]
