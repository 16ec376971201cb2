from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.optim import SGD
from torch.optim.lr_scheduler import LambdaLR

from onefold import batch_ensemble
from onefold.engine.optim.schedule import Given, WarmupCosine, warmup_cosine


def test_closed_form() -> None:
    assert warmup_cosine(0, 100, 10, 0.01) == 0.01
    assert warmup_cosine(5, 100, 10, 0.01) == pytest.approx(0.01 + 0.99 / 2)
    assert warmup_cosine(10, 100, 10, 0.01) == 1
    assert warmup_cosine(55, 100, 10, 0.01) == pytest.approx(0.5)
    assert warmup_cosine(100, 100, 10, 0.01) == pytest.approx(0, abs=1e-12)
    assert warmup_cosine(0, 4, 0, 0.01) == 1
    assert warmup_cosine(3, 4, 4, 0.0) == 0.75  # nothing but warm-up


def test_every_group_keeps_its_own_base() -> None:
    student = batch_ensemble(nn.Linear(4, 3), 4)
    optimizer = SGD(student.parameter_groups(0.1, 0.0), lr=0.1)
    schedule = WarmupCosine(optimizer, 20, 5.0, 0.01)
    twin = SGD(student.parameter_groups(0.1, 0.0), lr=0.1)
    reference = LambdaLR(twin, lambda t: 0.01 + 0.99 * t / 5 if t < 5 else 0.5 * (1 + math.cos(math.pi * (t - 5) / 15)))
    for step in range(20):
        told = schedule.before(step)
        rates = [group["lr"] for group in optimizer.param_groups]
        assert told == rates[0]
        assert rates == pytest.approx([group["lr"] for group in twin.param_groups])
        assert rates[1] == pytest.approx(4 * rates[0])
        twin.step()
        reference.step()
    schedule.before(3)  # a function of the step: no order in which it must be asked
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1 * (0.01 + 0.99 * 3 / 5))


def test_rates_in_tensors_are_written_in_place() -> None:
    rate = torch.tensor(0.1)
    optimizer = SGD([nn.Parameter(torch.zeros(1))], lr=rate)
    WarmupCosine(optimizer, 10, 0.0, 0.0).before(5)
    assert optimizer.param_groups[0]["lr"] is rate
    assert float(rate) == pytest.approx(0.05)


def test_a_given_scheduler_is_stepped_and_remembered() -> None:
    optimizer = SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = Given(torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5))
    for step in range(3):
        assert schedule.before(step) == 0.5**step
        optimizer.step()
        schedule.after()
    assert optimizer.param_groups[0]["lr"] == 0.125
    rate = torch.tensor(1.0)
    device_only = Given(torch.optim.lr_scheduler.ExponentialLR(SGD([nn.Parameter(torch.zeros(1))], lr=rate), 0.5))
    told = device_only.before(0)
    assert isinstance(told, torch.Tensor)  # not read: that would wait for the device
    rate.fill_(0.5)
    assert float(told) == 1.0
    again = Given(torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5))
    again.load_state_dict(schedule.state_dict())
    assert again.scheduler.last_epoch == 3
