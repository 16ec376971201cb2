"""The twin at rest follows its student and leaves it alone."""

from __future__ import annotations

import copy

import torch
from torch import nn

from onefold import batch_ensemble
from onefold.ensemble import Plain


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 3))


def test_it_answers_as_evaluation_mode_does_and_changes_no_mode() -> None:
    student = batch_ensemble(network(), 2, "normal")
    x = torch.randn(6, 4)
    student(x)
    statistics = student.net[1].running_mean.clone()  # type: ignore[index]
    answer = student.at_rest(x)
    assert student.net.training
    assert torch.equal(student.net[1].running_mean, statistics)  # type: ignore[index]
    assert torch.equal(answer, student.eval()(x))
    student.train()
    assert not any(m.training for m in student.at_rest.modules())


def test_it_follows_every_change() -> None:
    for student in (batch_ensemble(network(), 2, "normal"), Plain(network())):
        x = torch.randn(6, 4)
        student(x).sum().backward()
        torch.optim.SGD(student.parameters(), lr=0.1).step()
        student.load_state_dict({k: v + 0.01 for k, v in student.state_dict().items()})
        student.double()
        copied = copy.deepcopy(student)
        copied.load_state_dict(copy.deepcopy(student.state_dict()), assign=True)
        for each in (student, copied):
            each.eval()
            assert torch.equal(each.at_rest(x.double()), each(x.double()))
        assert not {id(p) for p in copied.at_rest.parameters()} & {id(p) for p in student.parameters()}


def test_it_is_no_second_set_of_parameters() -> None:
    student = batch_ensemble(network(), 2)
    assert {id(p) for p in student.at_rest.parameters()} == {id(p) for p in student.parameters()}
    assert not any("at_rest" in key for key in student.state_dict())
    assert student.at_rest.at_rest is student.at_rest
