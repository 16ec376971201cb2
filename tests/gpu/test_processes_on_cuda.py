"""The processes' part of a step on a GPU, over NCCL: one process suffices to see what it computes and waits for."""

from __future__ import annotations

import contextlib
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

import onefold.engine.training as preparing
from onefold import Teachers, batch_ensemble
from onefold.data import Arrays
from onefold.engine import Job, Settings
from onefold.engine.capture import CapturedStep
from onefold.engine.distributed.batch_norm import AcrossProcesses, share_statistics
from onefold.engine.distributed.processes import Processes
from onefold.engine.distributed.spread import SpreadTeachers
from onefold.engine.step import distillation_loss, training_step
from onefold.methods import method_named, perturbation_named
from onefold.models import wrn28
from onefold.objectives import one_to_one
from onefold.perturb import tdiv_sdiv
from onefold.recipe import OptimRecipe

pytestmark = [
    pytest.mark.gpu,
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


def losses(
    world: Processes, perturbation: str, fast: bool, spread: bool, own_draws: bool
) -> tuple[Tensor, Tensor, int]:
    """The losses of six steps, two of which see a smaller batch; where the random numbers stand then; the graphs."""
    torch.manual_seed(0)
    nets = [trained().eval(), trained().eval()]
    # At twice this rate the third loss, of eager steps whose channels lie outermost, was 1.01e-4 apart once.
    optim = OptimRecipe(batch_size=16, lr=0.01, warmup_epochs=0)
    job = Job(
        method=method_named("latentbe"),
        perturbation=perturbation_named(perturbation),
        net=trained(),
        teachers=(SpreadTeachers(nets, 2, world) if spread else Teachers(nets)).cuda(),
        train=Arrays(torch.randint(0, 256, (40, 3, 16, 16), dtype=torch.uint8), torch.randint(K, (40,))),
        val=None,
        test=None,
        settings=Settings(epochs=2, optim=optim, precision="float32", fast=fast),
        device=torch.device("cuda"),
        world=world,
    )
    training = preparing.prepare(job)
    if own_draws:  # as where a network draws by itself
        world.shared.generator = torch.Generator("cuda").manual_seed(3)
    found: list[Tensor] = []
    training.student.train()
    assert any(isinstance(module, AcrossProcesses) for module in training.student.net.modules())
    with contextlib.closing(training):  # who fails, too: a group cannot be left while graphs hold its collectives
        for epoch in range(2):
            for x, labels in training.batches(epoch, 0):
                training.schedule.before(len(found))
                found.append(training.step(x, labels).detach().clone())
        graphs = len(training.step.graphs) if isinstance(training.step, CapturedStep) else 0
        assert (training.student.net._compiled_call_impl is not None) == fast
    generator = torch.cuda.default_generators[0] if world.shared.generator is None else world.shared.generator
    return torch.stack(found), generator.get_state(), graphs


@pytest.mark.parametrize(
    ("perturbation", "spread", "own_draws"),
    [("tdiv-sdiv", False, False), ("gaussian", False, True), ("tdiv-sdiv", False, True), ("tdiv-sdiv", True, False)],
)
def test_rewritten_and_captured_steps_agree_with_plain_ones(
    world: Processes, perturbation: str, spread: bool, own_draws: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `prepare` puts them together where there are several processes."""
    monkeypatch.setattr(
        preparing, "with_common_statistics", lambda student, world: share_statistics(student.net, world)
    )
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    expected, stood, none = losses(world, perturbation, False, spread, own_draws)
    found, stands, graphs = losses(world, perturbation, True, spread, own_draws)
    assert (none, graphs) == (0, 2), "one for each size of a batch"
    assert torch.equal(stands, stood)
    # Later steps of a network in training amplify the last bit of earlier ones.
    torch.testing.assert_close(found[:3], expected[:3], rtol=1e-4, atol=0)
    torch.testing.assert_close(found, expected, rtol=2e-3, atol=0)
