"""Copies of a student that was made fast are networks of their own, also where the network is a single layer."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from onefold.engine import accelerate
from onefold.engine.accelerate import fast_student, fast_teachers
from onefold.engine.alike import gradient
from onefold.engine.distributed.batch_norm import share_statistics
from onefold.engine.distributed.world import ALONE
from onefold.engine.optim.ema import MovingAverage
from onefold.ensemble import BatchEnsemble, Plain, Teachers, batch_ensemble
from onefold.ensemble.layers import RankOneConv, RankOneLinear
from onefold.fast.network import make_fast
from onefold.methods import METHODS


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(RankOneConv, "on_activations", True)
    monkeypatch.setattr(RankOneLinear, "on_activations", True)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def convolution() -> nn.Module:
    """A convolution over the whole image, whose hook makes logits of its answer."""
    net = nn.Conv2d(3, 4, 5)
    net.register_forward_hook(lambda _, __, y: y.flatten(1))
    return net


ROOTS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(6, 4), (6,)),
    "convolution": (convolution, (3, 5, 5)),
}


@pytest.fixture(params=ROOTS)
def case(request: pytest.FixtureRequest) -> tuple[BatchEnsemble, Tensor]:
    """A student with members that differ, made fast, and inputs."""
    make, shape = ROOTS[request.param]
    torch.manual_seed(0)
    x = torch.rand(8, *shape)
    student = batch_ensemble(make(), 3, "normal", example=x)
    said: list[str] = []
    fast_student(student, x, "float32", said.append)
    assert not said
    assert student.net._compiled_call_impl is not None
    return student, x


def by_hand(student: BatchEnsemble, x: Tensor) -> Tensor:
    """Logits `[M, B, K]` of the members' weights theta o (r_m s_m^T), from what the layer holds."""
    held = dict(student.net.named_parameters())
    r, s = 1 + held["weight_r_minus_one"], 1 + held["weight_s_minus_one"]  # [M, in] and [M, out]
    theta = held["weight"]
    ones = (1,) * (theta.dim() - 2)
    weights = theta * (s[:, :, None] * r[:, None, :]).reshape(*r.shape[:1], *theta.shape[:2], *ones)
    return torch.einsum("bi,moi->mbo", x.flatten(1), weights.flatten(2)) + held["bias"]


def test_what_is_served_is_the_mean_of_the_weights(case: tuple[BatchEnsemble, Tensor]) -> None:
    student, x = case
    torch.testing.assert_close(student.at_rest(x), by_hand(student, x))
    served = METHODS["latentbe"].serve(student)
    torch.testing.assert_close(served(x), by_hand(student, x).mean(0, keepdim=True))


def test_a_moving_average_answers_with_its_own_weights(case: tuple[BatchEnsemble, Tensor]) -> None:
    student, x = case
    average = MovingAverage(student, 0.5).student
    assert isinstance(average, BatchEnsemble)
    with torch.no_grad():
        for p in student.parameters():
            p.add_(torch.rand_like(p))
    for one in (average, student):
        torch.testing.assert_close(one.at_rest(x), by_hand(one, x))
    assert not torch.allclose(average.at_rest(x), student.at_rest(x))


class Shared(nn.Conv2d):
    """One module for all copies of a network, to save memory."""

    def __deepcopy__(self, memo: object) -> Shared:
        return self


def on_shared() -> nn.Sequential:
    shared = Shared(3, 4, 3).requires_grad_(False)
    nn.init.zeros_(shared.weight)
    return nn.Sequential(shared, nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(36, 3))


def test_weights_that_copies_share_are_neither_filled_nor_folded() -> None:
    nets, x = [on_shared() for _ in range(3)], torch.rand(8, 3, 5, 5)
    before = [copy.deepcopy(dict(net.state_dict())) for net in nets]
    said: list[str] = []
    student = Plain(nets[0])
    fast_student(student, x, "float32", said.append)
    assert student.net._compiled_call_impl is None
    teachers = Teachers(nets[1:])
    assert fast_teachers(teachers, x, "bf16", said.append) is teachers
    assert len(said) == 2
    assert said[0].startswith("the student cannot be rewritten")
    assert said[1].startswith("the teachers cannot be rewritten")
    for net, held in zip(nets, before, strict=True):
        for name, value in net.state_dict().items():
            assert torch.equal(value, held[name]), name
            assert value.dtype == held[name].dtype


@pytest.mark.parametrize("refused", [False, True])
def test_copies_to_compare_gradients_with_hold_no_memory_afterwards(
    refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies: list[nn.Module] = []

    def noting(student: Plain, *rest: Any) -> Any:
        copies.append(student)
        return gradient(student, *rest)

    monkeypatch.setattr(accelerate, "gradient", noting)
    monkeypatch.setattr(accelerate, "EQUAL", 2.0 if refused else 0.99)
    student, x, said = Plain(nn.Linear(6, 4)), torch.rand(8, 6), list[str]()
    expected = student.at_rest(x)
    fast_student(student, x, "float32", said.append)
    assert len(said) == refused
    assert len(copies) == 2
    assert all(p.grad is None and not p.numel() for copied in copies for p in copied.parameters())
    torch.testing.assert_close(student.at_rest(x), expected)


def test_a_copy_of_a_norm_that_asks_other_processes_answers_with_its_own_weights() -> None:
    net, x = nn.BatchNorm1d(4).eval(), torch.rand(8, 4)
    assert not share_statistics(net, ALONE)
    make_fast(net)
    expected = net(x).clone()
    copied = copy.deepcopy(net)
    torch.nn.init.constant_(net.weight, 5)
    torch.testing.assert_close(copied(x), expected)
