"""What a run's temperature was fitted to is what `calibrated` divides: its likelihood is the run's calibrated one."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import onefold
from onefold.metrics import log_mean_probabilities
from onefold.objectives import dirichlet_mean


@dataclass
class Record:
    logits: Tensor


class Recording(nn.Module):
    """Answers as the classifiers of transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.body = net()

    def forward(self, x: Tensor) -> Record:
        return Record(self.body(x))


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3))


def data(count: int) -> tuple[Tensor, Tensor]:
    """Classes that overlap, so that there is a temperature to fit."""
    y = torch.arange(count) % 3
    return torch.randn(count, 16) + 2 * torch.eye(3, 16)[y], y


@pytest.mark.parametrize(
    ("method", "make", "options"),
    [
        ("latentbe", net, {}),
        ("latentbe", Recording, {}),
        ("be", net, {}),
        ("be", Recording, {}),
        ("proxy-end2", net, {"predict": dirichlet_mean}),
    ],
)
def test_a_run_calibrated(method: str, make: Any, options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    train, val, test = data(96), data(99), data(40)
    given: dict[str, Any] = {"val": val, "test": test, "perturbation": "none", "epochs": 8, "batch_size": 16}
    teachers = [onefold.distill(None, net(), train, method="supervised", seed=m, **given).model for m in range(2)]
    result = onefold.distill(teachers, make(), train, method=method, **given)
    assert abs(result.metrics["cnll"] - result.metrics["nll"]) > 1e-3
    assert result.temperature is not None
    assert 0.1 < result.temperature < 10
    served = onefold.calibrated(result.model, result.temperature, **options)
    assert served(test[0]).shape == (40, 3)
    found = onefold.evaluate(served, test)
    assert found["nll"] == pytest.approx(result.metrics["cnll"], abs=1e-6)
    assert found["ece"] == pytest.approx(result.metrics["cece"], abs=1e-6)
    assert onefold.evaluate(served, test, calibrate_on=val)["temperature"] == pytest.approx(1, abs=1e-3)
    assert onefold.evaluate(result, test, calibrate_on=val) == pytest.approx(result.metrics, rel=1e-5)
    again = onefold.calibrated(result)
    assert type(again) is type(served)
    assert torch.equal(again(test[0]), served(test[0]))


def test_a_result_knows_how_it_predicts(tmp_path: Path) -> None:
    """Also when it is read from its folder; softmax gives other numbers."""
    torch.manual_seed(0)
    train, val, test = data(96), data(99), data(40)
    given: dict[str, Any] = {"val": val, "test": test, "epochs": 8, "batch_size": 16, "method": "proxy-end2"}
    given["temperature"] = 1.0  # at higher ones logits are so large that the answers hardly differ
    plain = given | {"method": "supervised"}
    teachers, own = [onefold.distill(None, net(), train, seed=m, **plain).model for m in range(2)], net()
    trained, found = (onefold.distill(teachers, own, train, out=tmp_path, **given) for _ in range(2))
    for result in (trained, found):
        assert result.predict is dirichlet_mean
        assert onefold.evaluate(result, test, calibrate_on=val) == pytest.approx(result.metrics, rel=1e-5)
        softmax = onefold.evaluate(result, test, predict=log_mean_probabilities)
        assert softmax == onefold.evaluate(result.model, test)
        assert abs(softmax["nll"] - result.metrics["nll"]) > 1e-3
        warmer = onefold.calibrated(result, 2.0)(test[0])
        torch.testing.assert_close(warmer, dirichlet_mean(result.model(test[0])[None]) / 2)
        softened = onefold.calibrated(result, predict=log_mean_probabilities)(test[0])
        torch.testing.assert_close(softened, result.model(test[0]).log_softmax(-1) / result.temperature)


def test_a_result_without_a_temperature_is_refused() -> None:
    result = onefold.distill(None, net(), data(32), method="supervised", epochs=1)
    with pytest.raises(ValueError, match=r"temperature: expected a number, got None; distill\(\.\.\., val="):
        onefold.calibrated(result)
    assert onefold.calibrated(result, 2.0)(data(4)[0]).shape == (4, 3)


def test_teachers_calibrated() -> None:
    torch.manual_seed(0)
    teachers, test = onefold.Teachers([net(), net()]), data(40)
    before = copy.deepcopy(teachers.state_dict())
    served = onefold.calibrated(teachers, 0.1)
    expected = (teachers(test[0]).softmax(-1).mean(0).log() / 0.1).softmax(-1)
    torch.testing.assert_close(served(test[0]).softmax(-1), expected)
    again = onefold.calibrated(onefold.Teachers([net(), net()]), 3.0)
    again.load_state_dict(served.state_dict())
    torch.testing.assert_close(again(test[0]), served(test[0]))
    assert all(torch.equal(value, before[name]) for name, value in teachers.state_dict().items())


def test_a_student_with_members_calibrated_can_be_exported() -> None:
    x, _ = data(5)
    served = onefold.calibrated(onefold.batch_ensemble(net().eval(), 2, "normal", example=x), 2.0)
    exported: Any = torch.export.export(served, (x,)).module()
    torch.testing.assert_close(exported(x), served(x))
