"""One table: every method with every perturbation on two students, eager and compiled into one graph."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._inductor import config as inductor_config

from onefold import Teachers
from onefold.engine.step import distillation_loss
from onefold.methods import (
    METHODS,
    PERTURBATIONS,
    AnyStudent,
    Method,
    Perturbing,
    with_hyperparameters,
)
from onefold.names import check_pair
from onefold.objectives import cross_entropy

M, B, K = 3, 4, 5


class Convolutional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(6)
        self.block = nn.Conv2d(6, 6, 3, groups=2)
        self.head = nn.Linear(6, K)

    def forward(self, x: Tensor) -> Tensor:
        h = self.block(self.norm(self.stem(x)).relu()).relu()
        return torch.as_tensor(self.head(h.mean((2, 3))))


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(3 * 8, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1)
        self.head = nn.Linear(8, K)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.permute(0, 2, 1, 3).flatten(2)  # [B, H, C * W]
        return torch.as_tensor(self.head(self.encoder(self.embed(rows)).mean(1)))


STUDENTS: dict[str, type[nn.Module]] = {"convolutional": Convolutional, "transformer": Transformer}


def sensible(method: Method, perturbation: Perturbing) -> bool:
    try:
        check_pair(method, perturbation, M)
    except ValueError:
        return False
    return True


PAIRS = [(m, p) for m in METHODS.values() for p in PERTURBATIONS.values() if sensible(m, p)]
TABLE = [pytest.param(kind, m, p, id=f"{m.name}+{p.name}, {name}") for name, kind in STUDENTS.items() for m, p in PAIRS]
# Inductor generates code, which takes its time: the paper's method on both students, and the heaviest objectives.
CHOSEN = {
    "latentbe+tdiv-sdiv, convolutional",
    "latentbe+tdiv-sdiv, transformer",
    "aekd+none, convolutional",
    "proxy-end2+confods, convolutional",
}


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()


def make(
    kind: type[nn.Module], method: Method, perturbation: Perturbing, device: str = "cpu"
) -> tuple[Any, AnyStudent, Tensor, Tensor]:
    """The loss as a function of student, inputs and labels; a student; inputs; labels."""
    torch.manual_seed(0)
    x, y = torch.rand(B, 3, 8, 8), torch.randint(K, (B,))
    nets = [kind() for _ in range(M)]
    for net in nets:
        net(torch.rand(16, 3, 8, 8))  # statistics of its own
    teachers = Teachers(nets).to(device) if method.needs_teachers else None
    student = method.student(kind(), M, x).to(device)
    objective = with_hyperparameters(method.objective, alpha=0.9, temperature=3.0, cap=0.6)
    perturb = with_hyperparameters(perturbation.perturb, temperature=3.0)

    def loss(student: AnyStudent, x: Tensor, labels: Tensor) -> Tensor:
        return distillation_loss(x, labels, student, teachers, objective, perturb)

    return loss, student, x.to(device), y.to(device)


def run(loss: Any, student: AnyStudent, x: Tensor, y: Tensor) -> tuple[Tensor, list[Tensor]]:
    torch.manual_seed(1)
    student.zero_grad()
    value = loss(student, x, y)
    value.backward()
    return value.detach(), [p.grad for p in student.parameters() if p.grad is not None]


def compare(kind: type[nn.Module], method: Method, perturbation: Perturbing, backend: str) -> None:
    loss, student, x, y = make(kind, method, perturbation)
    other = copy.deepcopy(student)
    value, gradients = run(loss, student, x, y)
    assert value.isfinite()
    assert gradients

    compiled = torch.compile(loss, backend=backend, fullgraph=True)
    again, others = run(compiled, other, x, y)
    torch.testing.assert_close(again, value, rtol=1e-5, atol=1e-5)
    for a, b in zip(others, gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    for a, b in zip(other.buffers(), student.buffers(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)

    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    run(compiled, other, torch.rand_like(x), y.flip(0))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == graphs == 1


@pytest.mark.parametrize(("kind", "method", "perturbation"), TABLE)
def test_compiled_into_one_graph(kind: type[nn.Module], method: Method, perturbation: Perturbing) -> None:
    compare(kind, method, perturbation, "aot_eager")


@pytest.mark.filterwarnings("default")  # those of the code generator are not ours
@pytest.mark.parametrize(("kind", "method", "perturbation"), [p for p in TABLE if p.id in CHOSEN])
def test_inductor(kind: type[nn.Module], method: Method, perturbation: Perturbing) -> None:
    # Inductor draws random numbers in an order of its own unless told to draw as eager does.
    with inductor_config.patch(fallback_random=True):
        compare(kind, method, perturbation, "inductor")


@pytest.mark.parametrize(("kind", "method", "perturbation"), TABLE)
def test_nothing_waits_for_the_host(kind: type[nn.Module], method: Method, perturbation: Perturbing) -> None:
    """On a device that has no values: whatever looks at one, fails."""
    loss, student, x, y = make(kind, method, perturbation, device="meta")
    value, gradients = run(loss, student, x, y)
    assert value.is_meta
    assert gradients


def test_looking_at_a_value_would_be_noticed() -> None:
    def looks(student: Tensor, teachers: Tensor | None, labels: Tensor) -> Tensor:
        loss = cross_entropy(student, teachers, labels)
        return loss if loss > 0 else -loss

    method = dataclasses.replace(METHODS["supervised"], objective=looks)
    loss, student, x, y = make(Convolutional, method, PERTURBATIONS["none"], device="meta")
    with pytest.raises(RuntimeError, match="meta"):
        run(loss, student, x, y)


def test_the_table_covers_every_method_and_perturbation() -> None:
    assert {m.name for m, _ in PAIRS} == set(METHODS)
    assert {p.name for _, p in PAIRS} == set(PERTURBATIONS)
    assert len(PAIRS) == 2 + 3 * 5 + 2 * 6
    assert {p.id for p in TABLE} >= CHOSEN


def test_pairs_that_make_no_sense_are_refused() -> None:
    refuse = partial(check_pair, members=M)
    with pytest.raises(ValueError, match=r"'tdiv-sdiv' needs a student with members, and 'kd' trains a plain network"):
        refuse(METHODS["kd"], PERTURBATIONS["tdiv-sdiv"])
    with pytest.raises(ValueError, match=r"'ods' needs teachers, and 'supervised' has none"):
        refuse(METHODS["supervised"], PERTURBATIONS["ods"])
    with pytest.raises(ValueError, match="needs at least 2 teachers, got 1"):
        check_pair(METHODS["latentbe"], PERTURBATIONS["tdiv-sdiv"], 1)
