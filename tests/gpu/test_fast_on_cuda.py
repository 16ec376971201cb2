"""The fast path on a GPU: the numbers of eager float32, in graphs, side by side, and out of the way where it fails.

All GPU tests: `pytest -m gpu`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import onefold.engine.training as preparing
from onefold import Teachers
from onefold.data import Arrays, CropFlip
from onefold.engine import Job, Settings, capture
from onefold.engine.abreast import abreast
from onefold.engine.capture import CapturedStep
from onefold.engine.conduct import conduct, conducting
from onefold.engine.faithful import Expected, Trace, check_replay, traced
from onefold.engine.keeping.pack import pack, unpack
from onefold.engine.losses import weights_finite
from onefold.engine.training import Training, prepare
from onefold.fast import conv_kernels, passes, streams
from onefold.fast.streams import MANY, apart, foremost, stream
from onefold.methods import METHODS, PERTURBATIONS
from onefold.models import mlp, wrn28
from onefold.recipe import OptimRecipe

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
CUDA = torch.device("cuda")
PAIRS = [("supervised", "none"), ("kd", "gaussian"), ("kd", "tdiv"), ("aekd", "none"), ("proxy-end2", "ods")]
PAIRS += [("be", "confods"), ("latentbe", "none"), ("latentbe", "tdiv-sdiv")]


def images(count: int = 320) -> Arrays:
    draws = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (count, 3, 32, 32), dtype=torch.uint8, generator=draws)
    return Arrays(x, torch.randint(0, 10, (count,), generator=draws))


def job(method: str, perturbation: str, *, net: nn.Module | None = None, width: int = 1, **given: Any) -> Job:
    torch.manual_seed(0)
    teachers = Teachers([wrn28(width).eval() for _ in range(3)]) if METHODS[method].needs_teachers else None
    optim = OptimRecipe(batch_size=64, lr=0.02, warmup_epochs=0)
    return Job(
        method=METHODS[method],
        perturbation=PERTURBATIONS[perturbation],
        net=wrn28(width) if net is None else net,
        teachers=None if teachers is None else teachers.to(CUDA),
        train=images(),
        val=images(100),
        test=None,
        settings=dataclasses.replace(Settings(epochs=2, optim=optim, precision="float32"), **given),
        device=CUDA,
        augment=CropFlip(4),
    )


def losses(training: Training, steps: int) -> Tensor:
    found: list[Tensor] = []
    training.student.train()
    epoch = 0
    while len(found) < steps:
        for x, labels in training.train.batches(epoch):
            training.schedule.before(len(found))
            found.append(training.step(x, labels).detach().clone())
        epoch += 1
    return torch.stack(found[:steps])


def rewritten(given: Job) -> Training:
    """On the fast path in all its stages: where one is refused, losses are the eager path's and tell nothing."""
    return prepare(dataclasses.replace(given, say=pytest.fail))


def test_kernels_agree_with_their_description() -> None:
    runpy.run_path(str(Path(__file__).parents[1] / "fast" / "kernels_agree.py"), run_name="__main__")


def test_from_empty_caches_threads_compile_all_kernels_of_a_step(tmp_path: Path) -> None:
    # A process of its own: this one has compiled most kernels already.
    environment = os.environ | {"TRITON_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-W", "ignore", str(Path(__file__).parent / "compiled_ahead.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip().endswith("all compiled ahead")


@pytest.fixture
def exact() -> Any:
    """Full float32 in the eager path, which the fast one is compared with."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cudnn.allow_tf32 = before


@pytest.mark.parametrize(("method", "perturbation"), PAIRS)
def test_the_first_losses_are_those_of_the_eager_path(method: str, perturbation: str, exact: None) -> None:  # noqa: ARG001
    expected = losses(prepare(job(method, perturbation, fast=False)), 5)
    fast = rewritten(job(method, perturbation))
    found = losses(fast, 5)
    assert isinstance(fast.step, CapturedStep)
    assert fast.step.graphs, "the step was not captured"
    assert all(graph.expected is None for graph in fast.step.graphs.values()), "the graphs were not compared"
    # Later steps of a network in training amplify the last bit of earlier ones.
    torch.testing.assert_close(found[:3], expected[:3], rtol=1e-4, atol=0)
    torch.testing.assert_close(found, expected, rtol=2e-3, atol=0)
    rounded = losses(rewritten(job(method, perturbation, precision="bf16")), 5)
    torch.testing.assert_close(rounded, expected, rtol=2e-2, atol=0)


@pytest.mark.parametrize("fast", [False, True])
def test_programmes_of_aekd_go_by_the_kernel_in_a_fast_step_alone(fast: bool) -> None:
    from onefold.fast import interior_point

    with mock.patch.object(interior_point, "interior_point", wraps=interior_point.interior_point) as kernel:
        losses(prepare(job("aekd", "none", fast=fast)), 1)
    assert kernel.called == fast


class Transformer(nn.Module):
    """Patches of 4 x 4, two blocks with their norms before, a head."""

    def __init__(self, width: int = 48, heads: int = 3) -> None:
        super().__init__()
        self.heads = heads
        self.patches, self.head = nn.Conv2d(3, width, 4, 4), nn.Linear(width, 10)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(5))
        self.qkv = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(2))
        self.out = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.wide = nn.ModuleList(nn.Linear(width, 4 * width) for _ in range(2))
        self.narrow = nn.ModuleList(nn.Linear(4 * width, width) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        h = self.patches(x - 0.5).flatten(2).transpose(1, 2)  # [B, T, C]
        for k in range(2):
            qkv = self.qkv[k](self.norms[2 * k](h)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
            attended = nn.functional.scaled_dot_product_attention(*qkv.unbind())
            h = h + self.out[k](attended.transpose(1, 2).flatten(2))
            h = h + self.narrow[k](nn.functional.gelu(self.wide[k](self.norms[2 * k + 1](h))))
        return torch.as_tensor(self.head(self.norms[4](h).mean(1)))


@pytest.mark.parametrize(("method", "perturbation"), [("supervised", "none"), ("latentbe", "tdiv-sdiv")])
def test_a_transformer_s_losses_are_those_of_the_eager_path(method: str, perturbation: str, exact: None) -> None:  # noqa: ARG001
    torch.manual_seed(1)
    net = Transformer()
    expected = losses(prepare(job(method, perturbation, net=net, fast=False)), 5)
    fast = rewritten(job(method, perturbation, net=net))
    found = losses(fast, 5)
    assert isinstance(fast.step, CapturedStep)
    assert fast.step.graphs, "the step was not captured"
    torch.testing.assert_close(found, expected, rtol=2e-3, atol=0)
    rounded = losses(rewritten(job(method, perturbation, net=net, precision="bf16")), 5)
    torch.testing.assert_close(rounded, expected, rtol=2e-2, atol=0)


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_a_network_without_convolutions_is_captured(precision: str) -> None:
    torch.manual_seed(1)
    net = nn.Sequential(nn.Flatten(), mlp(3 * 32 * 32, 10))
    ready = prepare(job("latentbe", "tdiv-sdiv", net=net, precision=precision))
    assert losses(ready, 3).isfinite().all()
    assert isinstance(ready.step, CapturedStep)
    assert ready.step.graphs, "the step was not captured"


def test_parts_have_streams_of_their_own() -> None:
    """torch hands out 32 streams in turn: whoever asks often enough gets one that is in use."""
    parts = {stream(number).cuda_stream for number in range(MANY)}
    assert len(parts) == MANY
    assert all(apart().cuda_stream not in parts for _ in range(100))
    assert all(foremost().cuda_stream not in parts for _ in range(100))
    assert foremost().priority < stream(0).priority


def without() -> dict[str, contextlib.AbstractContextManager[Any]]:
    """The fast path without one of its stages, to tell which of them changes the numbers."""
    from onefold.fast.kernels import compiled

    return {
        "capture": mock.patch.object(CapturedStep, "attempt", return_value=None),
        "parts side by side": mock.patch.object(capture, "side_by_side", return_value=contextlib.nullcontext()),
        "gradients of weights beside": mock.patch.object(preparing, "Gradients", return_value=None),
        "early launches": mock.patch.object(compiled, "comes_early", return_value=False),
        "kernels of normalisation and factors": mock.patch.object(passes, "on_gpu", return_value=False),
        "kernels for few channels": mock.patch.object(conv_kernels, "small", return_value=False),
        "the student's rewriting": mock.patch.object(preparing, "fast_student"),
        "the teachers' rewriting": mock.patch.object(preparing, "fast_teachers", lambda teachers, *_: teachers),
        "attention in one kernel": sdpa_kernel(SDPBackend.MATH),
        "cuDNN's attention": sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]),
    }


@pytest.mark.parametrize(
    ("method", "perturbation", "width"),
    [
        ("supervised", "none", 1),
        ("kd", "tdiv", 1),
        ("latentbe", "tdiv-sdiv", 1),
        ("aekd", "none", 1),
        ("proxy-end2", "none", 1),
        ("be", "confods", 1),
        ("supervised", "none", 4),
        ("latentbe", "tdiv-sdiv", 4),
        ("latentbe", "tdiv-sdiv", None),
    ],
)
@pytest.mark.usefixtures("exact")
def test_fifty_losses_are_those_of_the_eager_path(method: str, perturbation: str, width: int | None) -> None:
    # So slow a warm-up that a network in training does not amplify the last bit: on a CPU, where the order of sums
    # alone differs, the fiftieth loss departs by 3e-5 at twice this rate and by 3e-3 at twenty times of it. A wide
    # student learns nearly all there is at that rate, and a part of what is left is rounding: it has a tenth of it.
    rate = 0.001 if width == 1 or method == "supervised" else 0.0001
    slow: dict[str, Any] = {"epochs": 10, "optim": OptimRecipe(batch_size=64, lr=rate, warmup_epochs=10)}
    torch.manual_seed(1)
    slow |= {"net": Transformer()} if width is None else {"width": width}
    expected = losses(prepare(job(method, perturbation, fast=False, **slow)), 50)
    assert expected.std() > 1e-3
    fast = losses(rewritten(job(method, perturbation, **slow)), 50)
    torch.testing.assert_close(fast, expected, rtol=1e-4, atol=0)

    def apart(make: Callable[[Job], Training] = prepare, **given: Any) -> Tensor:
        return losses(make(job(method, perturbation, precision="bf16", **slow, **given)), 50) / expected - 1

    rounded = apart(rewritten)
    if float(rounded.abs().max()) > 2e-2:
        eager = apart(fast=False)
        worst = {"nothing": rounded, "the fast path": eager}
        for stage, away in without().items():
            with away:
                worst[stage] = apart()
        told = {stage: f"{float(found.abs().max()):.2%}" for stage, found in worst.items()}
        every = f"{[round(float(k), 4) for k in rounded]} by step, eager bf16 {[round(float(k), 4) for k in eager]}"
        pytest.fail(f"in bf16 the losses are as far from eager float32's, without each stage: {told}; {every}")


def gradients(training: Training) -> dict[str, Tensor]:
    """Of the first step, by parameter: those that the update has used."""
    x, y = next(iter(training.train.batches(0)))
    training.student.train()
    training.step(x, y)
    grads = {name: p.grad for name, p in training.student.named_parameters()}
    return {name: g.detach().double().contiguous().flatten() for name, g in grads.items() if g is not None}


def likeness(one: Tensor, other: Tensor) -> float:
    return float(torch.nn.functional.cosine_similarity(one, other, dim=0))


@pytest.mark.parametrize("perturbation", ["none", "tdiv-sdiv"])
@pytest.mark.parametrize("width", [1, None])
@pytest.mark.usefixtures("exact")
def test_no_parameter_s_gradient_is_lost_in_rounding(width: int | None, perturbation: str) -> None:
    """Each by itself, as far as eager bf16 has it: losses alone hide one that is missing for dozens of steps."""
    torch.manual_seed(1)
    net = Transformer() if width is None else wrn28(width)
    ways: dict[str, dict[str, Any]] = {"exact": {"fast": False}, "eager": {"fast": False, "precision": "bf16"}}
    jobs = {way: job("latentbe", perturbation, net=net, **given) for way, given in ways.items()}
    found = {way: gradients(prepare(given)) for way, given in jobs.items()}
    found["fast"] = gradients(rewritten(job("latentbe", perturbation, net=net, precision="bf16")))
    assert found["fast"].keys() == found["eager"].keys() == found["exact"].keys()
    lost = {}
    for name, expected in found["exact"].items():
        fast, eager = likeness(found["fast"][name], expected), likeness(found["eager"][name], expected)
        length = float(found["fast"][name].norm() / expected.norm().clamp(min=1e-12))
        if eager > 0.5 and not (fast > eager - 0.1 and 0.7 < length < 1.4):
            lost[name] = f"likeness {fast:.3f}, eager {eager:.3f}; length {length:.3f}"
    assert not lost


def test_what_leaves_the_gpu_in_one_piece_is_what_was_there() -> None:
    net = wrn28(1).to(CUDA).to(memory_format=torch.channels_last)
    state = {"net": dict(net.state_dict()), "empty": torch.empty(0, 3, device=CUDA), "here": torch.rand(2, 3).t()}
    tensors, rest = pack(state)
    again = unpack(tensors, rest)
    for name, value in net.state_dict().items():
        assert torch.equal(again["net"][name], value.cpu()), name
    assert torch.equal(again["here"], state["here"])  # type: ignore[arg-type]
    assert len(safetensors.torch.save(tensors)) > 4 * sum(p.numel() for p in net.parameters())


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), -float("inf")])
def test_one_weight_that_is_no_number_is_seen(odd: float) -> None:
    net = wrn28(1).to(CUDA)
    assert weights_finite(net)
    with torch.no_grad():
        next(net.parameters()).view(-1)[5] = odd
    assert not weights_finite(net)


def test_capturing_takes_no_step_of_its_own() -> None:
    training = prepare(job("latentbe", "tdiv-sdiv"))
    before = {name: value.clone() for name, value in training.student.state_dict().items()}
    x, labels = next(iter(training.train.batches(0)))
    assert isinstance(training.step, CapturedStep)
    random = torch.cuda.get_rng_state()
    assert training.step.difference(training.step.capture(x, labels)) == ""
    assert torch.equal(torch.cuda.get_rng_state(), random)
    for name, value in training.student.state_dict().items():
        assert torch.equal(value, before[name]), name


@pytest.mark.parametrize("always", [False, True])
def test_a_graph_whose_gradients_are_disturbed_is_not_used(always: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """One gradient is overwritten in the graph: where parts run side by side, or always."""
    expected = losses(rewritten(job("latentbe", "tdiv-sdiv")), 5)
    said: list[str] = []
    training = prepare(dataclasses.replace(job("latentbe", "tdiv-sdiv"), say=said.append))
    assert isinstance(training.step, CapturedStep)
    part, captured = training.step.part, torch.cuda.is_current_stream_capturing

    def disturbed(x: Tensor, labels: Tensor) -> Tensor:
        loss = part(x, labels)
        if captured() and (always or streams.ROOM.get() is not None):
            max((p.grad for p in training.student.parameters() if p.grad is not None), key=Tensor.numel).neg_()
        return loss

    monkeypatch.setattr(training.step, "part", disturbed)
    torch.testing.assert_close(losses(training, 5), expected, rtol=2e-3, atol=0)
    assert bool(training.step.graphs) != always
    assert [line.split(":")[0] for line in said] == [
        "the parts of a captured step disturb one another and run one after another",
        "the step cannot be captured in a CUDA graph and runs kernel by kernel",
    ][: 1 + always]


class Host(nn.Module):
    """Looks at a value in its forward pass: nothing that a graph could hold."""

    def __init__(self) -> None:
        super().__init__()
        self.net = wrn28(1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.net(x)) * (1.0 if float(x.mean()) > -1 else 2.0)


def test_what_cannot_be_captured_trains_all_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(1)
    net = Host()
    expected = losses(prepare(job("supervised", "none", net=net, fast=False)), 6)
    capsys.readouterr()
    torch.testing.assert_close(losses(prepare(job("supervised", "none", net=net)), 6), expected, rtol=2e-3, atol=0)
    said = capsys.readouterr().out
    assert "runs layer by layer" in said
    assert "runs kernel by kernel" in said
    # And what comes after it can be captured again.
    after = prepare(job("latentbe", "tdiv-sdiv"))
    assert losses(after, 4).isfinite().all()
    assert isinstance(after.step, CapturedStep)
    assert after.step.graphs


def test_a_user_s_optimizer_updates_outside_of_the_graph() -> None:
    given = dataclasses.replace(job("kd", "none"), optimizer=lambda groups: torch.optim.AdamW(groups))
    given = dataclasses.replace(given, train=images(150))  # two batches and a smaller one: two graphs
    eager = dataclasses.replace(given, settings=dataclasses.replace(given.settings, fast=False))
    torch.testing.assert_close(losses(prepare(given), 6), losses(prepare(eager), 6), rtol=2e-3, atol=0)


@pytest.mark.parametrize("width", [1, None])
def test_graphs_that_run_at_once_do_not_disturb_one_another(width: int | None) -> None:
    """Each graph's parts were captured on the same streams, to which cuBLAS keeps its workspaces."""
    torch.manual_seed(1)
    teachers = Teachers([wrn28(width).eval() if width else Transformer().eval() for _ in range(3)]).to(CUDA)
    net = wrn28(width) if width else Transformer()
    given = job("latentbe", "tdiv-sdiv", net=net, precision="bf16")
    trainings = [rewritten(dataclasses.replace(given, teachers=teachers)) for _ in range(2)]
    graphs = []
    for k, training in enumerate(trainings):
        training.student.train()
        x, labels = list(training.train.batches(0))[k]
        assert isinstance(training.step, CapturedStep)
        graphs.append(training.step.capture(x, labels))

    def replayed(together: bool) -> list[Trace]:
        with contextlib.ExitStack() as stack:
            steps = [training.step for training in trainings if isinstance(training.step, CapturedStep)]
            copies = [stack.enter_context(step.taken_back(CUDA)) for step in steps]
            torch.cuda.synchronize()
            for graph in graphs:
                with torch.cuda.stream(apart()):
                    graph.graph.replay()
                if not together:
                    torch.cuda.synchronize()
            torch.cuda.synchronize()
            return [traced(step.modules, step.optimizer, before) for step, before in zip(steps, copies, strict=True)]

    expected = replayed(together=False)
    for _ in range(30):
        for found, alone, graph in zip(replayed(together=True), expected, graphs, strict=True):
            assert graph.expected is not None
            check_replay(found, Expected(alone, graph.expected.nudged), CUDA)


def test_runs_side_by_side_end_as_alone() -> None:
    expected = [conduct(job("latentbe", "tdiv-sdiv", seed=k)) for k in range(2)]
    found = abreast([conducting(job("latentbe", "tdiv-sdiv", seed=k)) for k in range(2)], CUDA)
    for one, other in zip(expected, found, strict=True):
        assert one.metrics["nll"] == pytest.approx(other.metrics["nll"], rel=0.05)
