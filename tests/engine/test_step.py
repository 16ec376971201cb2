from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD
from torch.utils._python_dispatch import TorchDispatchMode

from onefold import Teachers, batch_ensemble
from onefold.engine.optim.ema import MovingAverage
from onefold.engine.step import distillation_loss, training_step
from onefold.ensemble import BatchEnsemble, Plain
from onefold.methods import AnyStudent, with_hyperparameters
from onefold.objectives import cross_entropy, kd, one_to_one
from onefold.perturb import tdiv_sdiv

Make = Callable[[], tuple[AnyStudent, Callable[[Tensor, Tensor], Tensor], Tensor, Tensor]]


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).double()


def plain() -> tuple[Plain, Callable[[Tensor, Tensor], Tensor], Tensor, Tensor]:
    student = Plain(mlp())
    loss = partial(distillation_loss, student=student, teachers=None, objective=cross_entropy, perturb=None)
    return student, loss, torch.rand(10, 6).double(), torch.randint(3, (10,))


def latent() -> tuple[BatchEnsemble, Callable[[Tensor, Tensor], Tensor], Tensor, Tensor]:
    student = batch_ensemble(mlp(), 3)
    teachers = Teachers([mlp(), mlp(), mlp()])
    loss = partial(distillation_loss, student=student, teachers=teachers, objective=one_to_one, perturb=None)
    return student, loss, torch.rand(10, 6).double(), torch.randint(3, (10,))


@pytest.mark.parametrize("make", [plain, latent])
@pytest.mark.parametrize("parts", [2, 3, 10, 64])
def test_parts_add_up_to_the_whole(make: Make, parts: int) -> None:
    student, loss, x, labels = make()
    start = copy.deepcopy(student.state_dict())
    ends = []
    values = []
    for accumulate in (1, parts):
        student.load_state_dict(start)
        optimizer = SGD(student.parameter_groups(0.1, 0.01), momentum=0.9, nesterov=True)
        step = training_step(loss, optimizer, accumulate=accumulate)
        values.append([float(step(x, labels)) for _ in range(3)])
        ends.append(torch.cat([p.detach().flatten().clone() for p in student.parameters()]))
    assert values[0] == pytest.approx(values[1], rel=1e-12)
    torch.testing.assert_close(ends[0], ends[1], rtol=1e-12, atol=1e-14)
    assert not torch.allclose(ends[0], torch.cat([v.flatten() for v in start.values()]), atol=1e-4)


def test_the_step_is_the_textbook_one() -> None:
    student, loss, x, labels = plain()
    net = copy.deepcopy(student.net)
    step = training_step(loss, SGD(student.parameter_groups(0.1, 0.01), momentum=0.9, nesterov=True), clip=0.05)
    velocity = [torch.zeros_like(p) for p in net.parameters()]
    for _ in range(4):
        value = step(x, labels)
        expected = F.cross_entropy(net(x), labels)
        gradients = torch.autograd.grad(expected, list(net.parameters()))
        norm = torch.cat([g.flatten() for g in gradients]).norm()
        assert norm > 0.05
        with torch.no_grad():
            for p, g, v in zip(net.parameters(), gradients, velocity, strict=True):
                d = g * 0.05 / (norm + 1e-6) + 0.01 * p
                v.mul_(0.9).add_(d)
                p.sub_(0.1 * (d + 0.9 * v))
        torch.testing.assert_close(value, expected)
    for p, q in zip(student.net.parameters(), net.parameters(), strict=True):
        torch.testing.assert_close(p, q)


class Operations(TorchDispatchMode):
    """What is computed inside, by name."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func)
        if name.startswith("aten.") and "detach" not in name and "split" not in name:  # others compute nothing
            self.seen.append(name)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("make", [plain, latent])
def test_a_step_in_one_piece_computes_nothing_but_the_loss_and_its_gradient(make: Make) -> None:
    student, loss, x, labels = make()
    step = training_step(loss, SGD(student.parameter_groups(0.1, 0.0)))
    step.differentiate(x, labels)  # whatever is done once
    with Operations() as whole:
        step.differentiate(x, labels)
    student.zero_grad()
    with Operations() as bare:
        loss(x, labels).backward()
    assert whole.seen == bare.seen
    assert len(bare.seen) > 10


def test_the_average_follows_the_weights() -> None:
    net = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    student = batch_ensemble(net, 2)
    ema = MovingAverage(student, 0.8)
    expected = {k: v.clone() for k, v in student.state_dict().items()}
    loss = partial(
        distillation_loss, student=student, teachers=Teachers([net, net]), objective=one_to_one, perturb=None
    )
    step = training_step(loss, SGD(student.parameter_groups(0.1, 0.0)), ema=ema)
    for _ in range(3):
        step(torch.rand(8, 6), torch.zeros(8, dtype=torch.long))
        for name, value in student.state_dict().items():
            expected[name] = 0.8 * expected[name] + 0.2 * value if value.is_floating_point() else value.clone()
    for name, value in ema.student.state_dict().items():
        torch.testing.assert_close(value, expected[name])
    assert int(expected["net.1.num_batches_tracked"]) == 3
    # Evaluated in a view over its own weights, not over those in training.
    assert torch.equal(next(ema.student.at_rest.parameters()), next(ema.student.parameters()))
    assert not torch.equal(next(ema.student.at_rest.parameters()), next(student.parameters()))


def test_half_precision_moves_weights_in_full_precision() -> None:
    student = Plain(nn.Linear(6, 3))
    teachers = Teachers([nn.Linear(6, 3), nn.Linear(6, 3)])
    seen: list[torch.dtype] = []

    def objective(student: Tensor, teachers: Tensor | None, labels: Tensor) -> Tensor:
        seen.append(student.dtype)
        return kd(student, teachers, labels)

    loss = partial(distillation_loss, student=student, teachers=teachers, objective=objective, perturb=None)
    x, labels = torch.rand(8, 6), torch.zeros(8, dtype=torch.long)
    values = [
        training_step(loss, SGD(student.parameters(), lr=0.0), precision=p)(x, labels) for p in ("float32", "bf16")
    ]
    assert seen == [torch.float32, torch.bfloat16]
    torch.testing.assert_close(values[0], values[1], rtol=0.02, atol=0.02)
    assert next(student.parameters()).dtype == torch.float32


def test_the_loss_compiles_and_agrees() -> None:
    student, teachers = batch_ensemble(nn.Linear(6, 3), 2), Teachers([nn.Linear(6, 3), nn.Linear(6, 3)])
    x = torch.rand(8, 6)
    student.check(x)
    perturb = with_hyperparameters(tdiv_sdiv)
    loss = partial(distillation_loss, student=student, teachers=teachers, objective=one_to_one, perturb=perturb)
    compiled = torch.compile(loss, backend="aot_eager")
    values = []
    for function in (loss, compiled):
        torch.manual_seed(3)
        step = training_step(function, SGD(student.parameters(), lr=0.0))
        values.append(float(step(x, torch.zeros(8, dtype=torch.long))))
    assert values[0] == pytest.approx(values[1], rel=1e-5)


def doubled(x: Tensor, teachers: object, student: object) -> Tensor:  # noqa: ARG001
    return x.double()


@pytest.mark.parametrize(
    ("perturb", "got"),
    [
        (doubled, r"torch\.float64 \[8, 6\]"),
        (lambda x, *_: x[:4], r"torch\.float32 \[4, 6\]"),
        (lambda x, *_: x.long(), r"torch\.int64 \[8, 6\]"),
        (lambda *_: None, "NoneType"),
    ],
)
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_a_perturbation_returns_inputs_like_its_own(perturb: Any, got: str, precision: str) -> None:
    if precision == "bf16" and perturb is doubled:
        return  # there an operation may round, or not
    student = Plain(nn.Linear(6, 3))
    loss = partial(distillation_loss, student=student, teachers=None, objective=cross_entropy, perturb=perturb)
    step = training_step(loss, SGD(student.parameters(), lr=0.1), precision=precision)
    with pytest.raises(ValueError, match=rf"^perturbation: expected it to return .*, got {got}$"):
        step(torch.rand(8, 6), torch.zeros(8, dtype=torch.long))


def test_autocast_may_round_what_a_perturbation_returns() -> None:
    student = Plain(nn.Linear(6, 3))

    def perturb(x: Tensor, teachers: object, student: object) -> Tensor:  # noqa: ARG001
        return x @ torch.eye(6)

    loss = partial(distillation_loss, student=student, teachers=None, objective=cross_entropy, perturb=perturb)
    for precision in ("float32", "bf16"):
        step = training_step(loss, SGD(student.parameters(), lr=0.1), precision=precision)
        assert bool(step(torch.rand(8, 6), torch.zeros(8, dtype=torch.long)).isfinite())


@pytest.mark.parametrize(
    ("objective", "got"),
    [
        (partial(cross_entropy, reduction="none"), r"torch\.float32 \[1, 8\]"),
        (lambda *_: 0.5, "float"),
        (lambda *_: torch.tensor(1), r"torch\.int64 \[\]"),
    ],
)
def test_an_objective_returns_a_scalar(objective: Any, got: str) -> None:
    student = Plain(nn.Linear(6, 3))
    loss = partial(distillation_loss, student=student, teachers=None, objective=objective, perturb=None)
    with pytest.raises(ValueError, match=rf"^objective: expected it to return a scalar tensor.*, got {got}$"):
        loss(torch.rand(8, 6), torch.zeros(8, dtype=torch.long))
