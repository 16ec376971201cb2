"""The processes' part of a step on a GPU, over NCCL: one process suffices to see what it computes and waits for."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import _get_default_store
from torch.optim import SGD

from onefold import Teachers, batch_ensemble
from onefold.engine.distributed.batch_norm import share_statistics
from onefold.engine.distributed.processes import Processes
from onefold.engine.distributed.spread import SpreadTeachers
from onefold.engine.step import distillation_loss, training_step
from onefold.models import wrn28
from onefold.objectives import one_to_one
from onefold.perturb import tdiv_sdiv

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode"),
]
B, K = 8, 5


class Summing(Processes):
    """One process that goes through with its collectives."""

    def summed(self, parameters: Any, loss: Tensor) -> Tensor:
        self.sum_([p.grad for p in parameters if p.grad is not None] + [loss])
        return loss


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Processes]:
    dist.init_process_group("cpu:gloo,cuda:nccl", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield Summing(0, 1, 0, _get_default_store(), None)
    torch.cuda.synchronize()
    dist.destroy_process_group()


def trained() -> nn.Module:
    net = wrn28(1, K)
    net(torch.rand(16, 3, 16, 16))
    return net


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_statistics_are_torchs(world: Processes, layout: Any, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    plain = nn.BatchNorm2d(6).cuda()
    nn.init.uniform_(plain.weight)
    shared = copy.deepcopy(plain)
    assert share_statistics(shared, world) == []
    x = (3 + torch.randn(16, 6, 5, 5, device="cuda")).to(dtype, memory_format=layout)
    results = []
    for norm in (plain, shared):
        z = x.clone().requires_grad_()
        y = norm(z)
        assert y.dtype == dtype
        (y * torch.linspace(-1, 1, y.numel(), device="cuda").view_as(y)).sum().backward()
        assert z.grad is not None
        assert norm.weight.grad is not None
        results.append((y, z.grad, norm.weight.grad, norm.running_mean, norm.running_var))
    tolerance = 1e-4 if dtype == torch.float32 else 3e-2
    for expected, found in zip(*results, strict=True):
        scale = float(expected.detach().float().abs().max())
        torch.testing.assert_close(found.float(), expected.float(), rtol=tolerance, atol=tolerance * scale)


def step_of(world: Processes, spread: bool) -> tuple[Any, Any, Tensor, Tensor]:
    torch.manual_seed(0)
    x, y = torch.rand(B, 3, 16, 16, device="cuda"), torch.randint(K, (B,), device="cuda")
    nets = [trained(), trained()]
    teachers = (SpreadTeachers(nets, 2, world) if spread else Teachers(nets)).cuda()
    student = batch_ensemble(trained().cuda(), 2, example=x)
    share_statistics(student.net, world)
    perturb = partial(tdiv_sdiv, draws=world.draws)
    teachers(x)  # agrees about the classes
    loss = partial(distillation_loss, student=student, teachers=teachers, objective=one_to_one, perturb=perturb)
    optimizer = SGD(student.parameter_groups(0.01, 1e-4), lr=0.01, momentum=0.9, nesterov=True)
    world.take(x, y, [B])
    return student, training_step(loss, optimizer, world=world), x, y


@pytest.mark.parametrize("spread", [False, True])
def test_nothing_in_the_step_waits(world: Processes, spread: bool) -> None:
    _, step, x, y = step_of(world, spread)
    step(x, y)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        loss = step(x, y)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert loss.isfinite()


def test_the_collectives_are_captured_with_the_step(world: Processes) -> None:
    student, step, x, y = step_of(world, spread=False)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step(x, y)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(x, y)
    before = copy.deepcopy(student.state_dict())
    graph.replay()
    torch.cuda.synchronize()
    after = student.state_dict()
    assert any(not torch.equal(before[name], after[name]) for name in before)
    assert all(bool(value.isfinite().all()) for value in after.values() if value.is_floating_point())
