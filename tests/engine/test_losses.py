from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from onefold.engine.losses import Diverged, Losses, check_finite, weights_finite


def test_the_first_bad_step_is_named() -> None:
    losses = Losses(10, torch.device("cpu"))
    for value, rate in ((1.0, 0.1), (2.0, 0.2), (float("inf"), 0.3), (float("nan"), 0.4)):
        losses.append(torch.tensor(value), rate)
    with pytest.raises(Diverged, match=r"step 109: the loss is inf \(learning rate 0.3\).*there is no checkpoint yet"):
        check_finite(losses, 110, lambda: None)
    with pytest.raises(Diverged, match=r"checkpoint is runs/x\. Clip the gradient \(clip=1\.0, .* in another folder$"):
        check_finite(losses, 110, lambda: Path("runs/x"))
    losses.clear()
    assert check_finite(losses, 110, lambda: None) == []


def test_a_buffer_comes_back_from_its_state() -> None:
    losses = Losses(4, torch.device("cpu"))
    losses.append(torch.tensor(0.1), 0.5)
    losses.append(torch.tensor(0.3), 0.25)
    other = Losses(4, torch.device("cpu"))
    other.append(torch.tensor(9.0), 9.0)
    other.load_state_dict(losses.state_dict())
    assert other.read() == losses.read()
    assert other.rates == [0.5, 0.25]


def test_weights_and_statistics_are_looked_at() -> None:
    net = nn.BatchNorm1d(2)
    assert weights_finite(net)
    assert weights_finite(nn.ReLU())
    assert net.running_var is not None
    net.running_var[0] = float("inf")
    assert not weights_finite(net)
