"""SGD in one kernel: torch's steps, from gradients in two precisions. `kernels_agree.py` runs the kernel itself."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD

from onefold.engine.conduct import describe_optimizer
from onefold.engine.optim.factories import load_optimizer
from onefold.fast.convolve import Gradients
from onefold.fast.sgd import OneKernelSGD


def parameters() -> list[nn.Parameter]:
    torch.manual_seed(0)
    shapes = [(8, 4, 3, 3), (8, 4, 1, 1), (5,), (3, 7), ()]
    values = [torch.randn(shape) for shape in shapes]
    values[0] = values[0].contiguous(memory_format=torch.channels_last)
    return [nn.Parameter(value) for value in values]


def groups(found: list[nn.Parameter]) -> list[dict[str, Any]]:
    return [
        {"params": found[:3], "lr": torch.tensor(0.1), "weight_decay": 0.05},
        {"params": found[3:], "lr": torch.tensor(0.4), "weight_decay": 0.0},
    ]


@pytest.mark.parametrize("nesterov", [True, False])
def test_steps_are_those_of_torch(nesterov: bool) -> None:
    ours, theirs = parameters(), parameters()
    settings: dict[str, Any] = {"lr": 0.1, "momentum": 0.9, "nesterov": nesterov}
    mine, other = OneKernelSGD(groups(ours), **settings), SGD(groups(theirs), **settings)
    for step in range(4):
        for k, (p, q) in enumerate(zip(ours, theirs, strict=True)):
            g = torch.randn_like(p).bfloat16()
            q.grad = g.float()
            if k == 0:
                mine.rounded[p] = g
            else:
                p.grad = None if k == 3 and step == 2 else g.float()
                q.grad = None if k == 3 and step == 2 else q.grad
        mine.step()
        other.step()
        assert not mine.rounded
        mine.zero_grad()
        for p, q in zip(ours, theirs, strict=True):
            torch.testing.assert_close(p, q, rtol=1e-6, atol=1e-6)


def test_a_checkpoint_goes_from_torch_to_ours_and_back() -> None:
    ours, theirs = parameters(), parameters()
    theirs[0].data = theirs[0].data.contiguous()  # as a training without the fast path has it
    mine = OneKernelSGD(groups(ours), lr=0.1, momentum=0.9, nesterov=True)
    other = SGD(groups(theirs), lr=0.1, momentum=0.9, nesterov=True)

    def step(optimizer: SGD, moved: list[nn.Parameter], seed: int) -> None:
        draws = torch.Generator().manual_seed(seed)
        for p in moved:
            p.grad = torch.empty_like(p).copy_(torch.randn(p.shape, generator=draws))
        optimizer.step()

    for seed in range(4):
        a, b = (mine, other) if seed % 2 else (other, mine)
        step(a, ours if a is mine else theirs, seed)
        load_optimizer(b, a.state_dict())
        with torch.no_grad():
            for p, q in zip(ours, theirs, strict=True):
                p.copy_(q) if a is other else q.copy_(p)
    plain = parameters()
    reference = SGD(groups(plain), lr=0.1, momentum=0.9, nesterov=True)
    for seed in range(4):
        step(reference, plain, seed)
    for p, q in zip(ours, plain, strict=True):
        torch.testing.assert_close(p, q, rtol=1e-6, atol=1e-6)


def test_a_folder_says_the_same_of_both() -> None:
    settings: dict[str, Any] = {"lr": 0.1, "momentum": 0.9, "nesterov": True}
    mine = OneKernelSGD(groups(parameters()), **settings)
    assert describe_optimizer(mine) == describe_optimizer(SGD(groups(parameters()), **settings))


def test_a_captured_table_is_not_in_memory_that_the_graph_writes_to() -> None:
    found = parameters()
    optimizer = OneKernelSGD(groups(found), lr=0.1, momentum=0.9, nesterov=True)
    rows, device = torch.arange(21).view(7, 3), torch.device("cpu")
    assert optimizer.table(0, rows, device) is rows
    room = optimizer.to_be_captured()
    assert [len(place) for place in room] == [21, 14]
    for place in room:
        place.fill_(-1)
    with mock.patch("onefold.fast.sgd.capturing", return_value=True):
        first, second = optimizer.table(0, rows, device), optimizer.table(1, rows[:, :1], device)
    assert first.data_ptr() == room[0].data_ptr()
    assert second.data_ptr() == room[1].data_ptr()
    assert first.max() == -1  # a copy from the host has no place in a graph
    optimizer.captured()
    assert torch.equal(first, rows)
    assert torch.equal(second, rows[:, :1])


@mock.patch("torch.cuda.current_stream", mock.Mock())
@mock.patch("onefold.fast.convolve.apart", mock.Mock())
def test_gradients_are_left_as_they_were_written() -> None:
    torch.manual_seed(0)
    weight, pointwise, odd, twice, added = (
        nn.Parameter(torch.randn(shape).contiguous(memory_format=torch.channels_last))
        for shape in [(8, 4, 3, 3), (8, 4, 1, 1), (8, 3, 3, 3), (8, 4, 3, 3), (8, 4, 3, 3)]
    )

    def written(*shape: int) -> Tensor:
        return torch.randn(shape).bfloat16().contiguous(memory_format=torch.channels_last)

    filled = written(8, 16, 3, 3)[:, :3]
    found = [
        (weight, written(8, 4, 3, 3)),
        (pointwise, written(8, 4, 1, 1).as_strided((8, 4, 1, 1), (4, 1, 4, 4))),
        (odd, filled),
        (twice, written(8, 4, 3, 3)),
        (twice, written(8, 4, 3, 3)),
        (added, written(8, 4, 3, 3)),
    ]
    added.grad = torch.ones_like(added)
    gradients = Gradients()
    gradients.found += found
    rounded: dict[Tensor, Tensor] = {}
    gradients.join(rounded)
    assert set(rounded) == {weight, pointwise}
    assert torch.equal(rounded[weight], found[0][1])
    assert rounded[pointwise].stride() == pointwise.stride()
    assert weight.grad is None
    for p, expected in (
        (odd, filled.float()),
        (twice, found[3][1].float() + found[4][1].float()),
        (added, found[5][1].float() + 1),
    ):
        assert p.grad is not None
        assert torch.equal(p.grad, expected)
