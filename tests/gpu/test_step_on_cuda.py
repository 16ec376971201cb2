"""The step on a GPU: the same numbers as on the CPU, and nothing in it waits for the host.

All GPU tests: `pytest -m gpu`. They are skipped where there is no CUDA device.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from onefold import Teachers, batch_ensemble, collapse, subnetwork
from onefold.engine.step import distillation_loss
from onefold.methods import METHODS, PERTURBATIONS, Method, Perturbing, with_hyperparameters
from onefold.metrics import Classification
from onefold.models import wrn28
from onefold.names import check_pair
from onefold.objectives import one_to_one
from onefold.perturb import InputSpace, gaussian, tdiv_sdiv

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode"),
]
M, B, K = 3, 8, 5


@pytest.fixture
def no_waiting() -> Iterator[Any]:
    """Turns every synchronisation into an error once it is entered."""
    yield lambda: torch.cuda.set_sync_debug_mode("error")
    torch.cuda.set_sync_debug_mode("default")


def sensible(method: Method, perturbation: Perturbing) -> bool:
    try:
        check_pair(method, perturbation, M)
    except ValueError:
        return False
    return True


PAIRS = [
    pytest.param(m, p, id=f"{m.name}+{p.name}")
    for m in METHODS.values()
    for p in PERTURBATIONS.values()
    if sensible(m, p)
]


def trained() -> nn.Module:
    net = wrn28(1, K)
    net(torch.rand(16, 3, 16, 16))
    return net


@pytest.mark.parametrize(("method", "perturbation"), PAIRS)
def test_nothing_waits(method: Method, perturbation: Perturbing, no_waiting: Any) -> None:
    torch.manual_seed(0)
    x, y = torch.rand(B, 3, 16, 16, device="cuda"), torch.randint(K, (B,), device="cuda")
    teachers = Teachers([trained() for _ in range(M)]).cuda() if method.needs_teachers else None
    student = method.student(trained().cuda(), M, x)
    objective = with_hyperparameters(method.objective, alpha=0.9, temperature=3.0)
    for attempt in range(2):
        if attempt:
            no_waiting()
        loss = distillation_loss(x, y, student, teachers, objective, perturbation.perturb)
        loss.backward()
    torch.cuda.set_sync_debug_mode("default")
    assert loss.isfinite()


@pytest.mark.parametrize("perturb", [gaussian, tdiv_sdiv])
def test_nothing_waits_for_a_space_of_tensors(perturb: Any, no_waiting: Any) -> None:
    x = torch.randn(B, 3, 16, 16, device="cuda").clamp(-1, 1)
    teachers, student = Teachers([trained() for _ in range(M)]).cuda(), batch_ensemble(trained().cuda(), M)
    space = InputSpace.standardized([0.5] * 3, [0.25] * 3).on(x.device)
    for attempt in range(2):
        if attempt:
            no_waiting()
        moved = perturb(x, teachers, student, space=space)
    torch.cuda.set_sync_debug_mode("default")
    assert moved.isfinite().all()


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_the_same_numbers_as_on_the_cpu(method: Method) -> None:
    torch.manual_seed(0)
    nets = [trained().double() for _ in range(M)]
    x, y = torch.rand(B, 3, 16, 16, dtype=torch.float64), torch.randint(K, (B,))
    student = method.student(trained().double(), M, x)
    objective = with_hyperparameters(method.objective, alpha=0.9, temperature=3.0)
    results: list[tuple[Tensor, list[Tensor]]] = []
    for device in ("cpu", "cuda"):
        own = copy.deepcopy(student).to(device)
        teachers = Teachers(nets).to(device) if method.needs_teachers else None
        loss = distillation_loss(x.to(device), y.to(device), own, teachers, objective, None)
        loss.backward()
        results.append((loss.detach().cpu(), [p.grad.cpu() for p in own.parameters() if p.grad is not None]))
    (a, of_a), (b, of_b) = results
    torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-10)
    for g, h in zip(of_a, of_b, strict=True):
        torch.testing.assert_close(g, h, rtol=1e-6, atol=1e-9)


def test_teachers_picked_by_a_device_index(no_waiting: Any) -> None:
    teachers = Teachers([trained() for _ in range(M)]).cuda()
    assert teachers.alike
    x, index = torch.rand(B, 3, 16, 16, device="cuda"), torch.tensor([2, 0], device="cuda")
    teachers(x, index)
    no_waiting()
    picked = teachers(x, index)
    torch.cuda.set_sync_debug_mode("default")
    torch.testing.assert_close(picked, teachers(x)[index], rtol=1e-4, atol=1e-4)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 6, batch_first=True)
        self.head = nn.Linear(6, K)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.head(self.lstm(x)[0][:, -1]))


def test_recurrent_networks_can_be_perturbed() -> None:
    teachers = Teachers([Recurrent() for _ in range(M)]).cuda()
    x = torch.rand(B, 7, 4, device="cuda")
    student = batch_ensemble(Recurrent().cuda(), M, "normal", example=x)
    moved = tdiv_sdiv(x, teachers, student)
    assert bool((moved != x).any())


def test_loss_and_backward_in_a_cuda_graph() -> None:
    """The step can be captured whole; a replay draws new pairs and gives finite, changing losses."""
    torch.manual_seed(0)
    x, y = torch.rand(B, 3, 16, 16, device="cuda"), torch.randint(K, (B,), device="cuda")
    teachers = Teachers([trained() for _ in range(M)]).cuda()
    student = batch_ensemble(trained().cuda(), M, "normal", example=x)

    def step() -> Tensor:
        student.zero_grad(set_to_none=False)
        loss = distillation_loss(x, y, student, teachers, one_to_one, PERTURBATIONS["tdiv-sdiv"].perturb)
        loss.backward()
        return loss.detach()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    values = []
    for _ in range(20):
        graph.replay()
        values.append(float(loss))
    assert all(v == v and abs(v) < 1e6 for v in values)
    assert len(set(values)) > 1


def test_collapse_on_the_device_is_exact_under_tf32() -> None:
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        student = batch_ensemble(wrn28(1, K).cuda(), M, "normal")
        averaged = collapse(student).state_dict()
        members = [subnetwork(student, m).state_dict() for m in range(M)]
        for key, value in averaged.items():
            if value.is_floating_point():
                mean = torch.stack([s[key] for s in members]).mean(0)
                torch.testing.assert_close(value, mean, rtol=1e-5, atol=1e-6)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False


def test_metrics_accumulate_without_waiting(no_waiting: Any) -> None:
    logits, labels = torch.randn(64, K, device="cuda"), torch.randint(K, (64,), device="cuda")
    on_device, on_host = Classification(K, device="cuda"), Classification(K)
    on_device.update(logits, labels)
    no_waiting()
    on_device.update(logits.flip(0), labels)
    torch.cuda.set_sync_debug_mode("default")
    for each in (logits, logits.flip(0)):
        on_host.update(each.cpu(), labels.cpu())
    for key, value in on_host.compute().items():
        assert on_device.compute()[key] == pytest.approx(value, rel=1e-5, abs=1e-6)
