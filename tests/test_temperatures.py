"""What Python hears of a temperature that the validation split does not tell."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from onefold.api import distill, evaluate

UNTOLD, HIGHEST = "the temperature is 1, which leaves the network as it is", "the temperature is 1000, the highest"


def data(count: int, *, shift: int = 0) -> tuple[Tensor, Tensor]:
    """Every pixel says which class it is; or another one, where the labels are shifted."""
    y = torch.arange(count) % 3
    return torch.eye(3)[y][:, None].expand(-1, 4, 3).clone(), (y + shift) % 3


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 3))


def supervised(val: tuple[Tensor, Tensor], **more: Any) -> Any:
    given: dict[str, Any] = {
        "method": "supervised",
        "perturbation": "none",
        "epochs": 4,
        "batch_size": 15,
        "workers": 0,
    }
    return distill(None, net(), data(60), val=val, device="cpu", **given, **more)


@pytest.mark.parametrize(("shift", "sentence"), [(0, UNTOLD), (1, HIGHEST)])
def test_a_temperature_that_is_not_told_is_warned_of_once(
    shift: int, sentence: str, caplog: pytest.LogCaptureFixture
) -> None:
    val = data(30, shift=shift)
    result = supervised(val)
    (told,) = caplog.messages
    assert told.startswith(sentence)
    caplog.clear()
    found = evaluate(result.model, data(30), calibrate_on=val, device="cpu")
    assert caplog.messages == [told]
    assert found["temperature"] == result.temperature


def test_who_listens_is_told_and_not_warned(caplog: pytest.LogCaptureFixture) -> None:
    messages: list[str] = []

    class Listening:
        def update(self, *_: float) -> None:
            pass

        def message(self, text: str) -> None:
            messages.append(text)

    supervised(data(30), progress=Listening())
    assert caplog.messages == []
    (told,) = [text for text in messages if "temperature" in text]
    assert told.startswith(UNTOLD)


def test_a_temperature_within_is_no_reason_to_speak(caplog: pytest.LogCaptureFixture) -> None:
    x, y = data(30)
    mixed = (x, torch.cat([y[:27], (y[27:] + 1) % 3]))
    result = supervised(mixed)
    assert caplog.messages == []
    assert 0.001 < result.temperature < 1000
    assert result.temperature != 1


def test_a_temperature_that_does_harm_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """On val the network is right more often than on test, so that it is made too sure."""
    x, y = data(30)
    val, test = ((x, torch.cat([y[:right], (y[right:] + 1) % 3])) for right in (29, 5))
    result = supervised(val, test=test)
    assert result.metrics["cnll"] > 1.1 * result.metrics["nll"]
    (told,) = caplog.messages
    assert told.startswith("the temperature makes the NLL of the test split worse by more than a tenth")
    caplog.clear()
    evaluate(result.model, test, calibrate_on=val, device="cpu")
    assert caplog.messages == [told]
