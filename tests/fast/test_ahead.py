"""Kernels asked for before they run. Triton compiles for a GPU that is not there; what it launches is written down."""

from __future__ import annotations

import copy
import gc
import importlib.util
import logging
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from onefold import batch_ensemble
from onefold.engine.capture import CapturedStep
from onefold.engine.step import training_step
from onefold.ensemble import BatchEnsemble
from onefold.ensemble.layers import RankOneConv
from onefold.fast import ahead, conv_kernels, few_channels, passes
from onefold.fast.ahead import compile_ahead
from onefold.fast.network import make_fast

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="no Triton"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU, where tests/gpu compiles ahead"),
]
FIXED = conv_kernels.Settings([1, 1], [1, 1], [1, 1], False, [0, 0], 1)


class Absent:
    """What Triton asks of a GPU's driver."""

    def __init__(self) -> None:
        self.compiled: list[tuple[str, str]] = []  # names of kernels, and of the threads that compiled them
        self.launched: list[str] = []
        self.loaded: list[str] = []
        self.utils = self

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return device

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)

    def get_device_properties(self, device: int) -> dict[str, int]:  # noqa: ARG002
        return {"max_shared_mem": 232448}

    def load_binary(self, name: str, *_: Any) -> tuple[Any, ...]:
        self.loaded.append(name)
        return "module", "function", 0, 0, 1024

    def unload_module(self, *_: Any) -> None:
        pass

    def launcher_cls(self, src: Any, metadata: Any) -> Callable[..., None]:  # noqa: ARG002
        return lambda *_: self.launched.append(src.name)

    def listen(self, *, src: Any, cache_hit: bool, **_: Any) -> None:
        assert not cache_hit
        self.compiled.append((src.name, threading.current_thread().name))


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Absent]:
    import triton
    from triton.runtime.driver import driver

    from onefold.fast import interior_point
    from onefold.fast.kernels import launch

    absent = Absent()
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")  # of which Triton 3.9 warns where it is not said
    monkeypatch.setattr(triton.knobs.compilation, "listener", absent.listen)
    monkeypatch.setattr(passes, "on_gpu", lambda _: True)
    modules = (launch, few_channels, interior_point)
    kernels = [k for m in modules for k in vars(m).values() if isinstance(k, triton.JITFunction)]
    assert len(kernels) > 10
    driver.set_active(absent)
    for kernel in kernels:
        kernel.device_caches.clear()
    yield absent
    for kernel in kernels:
        kernel.device_caches.clear()
    gc.collect()  # kernels ask the driver to unload them
    driver._active = None


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.conv2, self.norm2 = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.head = nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm1(self.conv1(x)).relu()
        return torch.as_tensor(self.head(self.norm2(h + self.conv2(h)).relu().mean((2, 3))))


def student() -> BatchEnsemble:
    torch.manual_seed(0)
    made = batch_ensemble(Net(), 2, "normal").train()
    for module in made.modules():
        if isinstance(module, RankOneConv):
            module.on_activations = True  # as on a GPU
    make_fast(made.net)
    return made


def gradients(made: BatchEnsemble, x: Tensor) -> list[Tensor]:
    made.zero_grad()
    loss = made(x).square().mean()
    loss.backward()
    return [loss.detach(), *(p.grad.clone() for p in made.parameters() if p.grad is not None)]


def test_a_pass_that_asks_runs_no_kernel_and_leaves_none_to_compile(
    gpu: Absent, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, ahead.__name__)
    x, made = torch.rand(3, 3, 4, 4), student()
    with monkeypatch.context() as on_host:
        on_host.setattr(passes, "on_gpu", lambda _: False)
        expected = gradients(student(), x)
    found: list[Tensor] = []
    compile_ahead(lambda: found.extend(gradients(made, x)))
    assert gpu.launched == []
    for mine, theirs in zip(found, expected, strict=True):
        assert torch.equal(mine, theirs)  # the descriptions stood in
    asked = list(gpu.compiled)
    assert len(asked) > 5
    assert all(thread.startswith(ahead.NAME) for _, thread in asked)
    assert sorted(gpu.loaded) == sorted(name for name, _ in asked)
    gradients(made, x)
    # On a machine that is out of memory or processes a thread may fail, and says so.
    failed = [record.getMessage() for record in caplog.records if record.name == ahead.__name__]
    assert len(gpu.compiled) <= len(asked) + len(failed), (gpu.compiled[len(asked) :], failed)
    assert set(gpu.launched) == {name for name, _ in gpu.compiled}
    assert not ahead.only_asked()


def test_a_thread_of_its_own_asks_too(gpu: Absent) -> None:
    x, s = torch.rand(4, 3, 2, 2), torch.rand(2, 3)

    def backward() -> None:  # on a GPU autograd has one, whose context is empty
        thread = threading.Thread(target=lambda: passes.scaled_gradient(x, x, s))
        thread.start()
        thread.join()

    compile_ahead(backward)
    assert [name for name, _ in gpu.compiled] == ["scaled_gradient_kernel"]
    assert gpu.compiled[0][1].startswith(ahead.NAME)
    assert gpu.launched == []


def test_kernels_for_this_gpu_wait_for_the_one_before(gpu: Absent, tmp_path: Path) -> None:
    x = torch.rand(3, 3, 4, 4)
    compile_ahead(lambda: gradients(student(), x))
    code = {path.stem: path.read_text() for path in tmp_path.rglob("*.ptx")}
    assert set(code) == {name for name, _ in gpu.compiled}
    before = {name: text[text.index(".entry") :].partition("griddepcontrol.wait") for name, text in code.items()}
    assert [name for name, (_, wait, _) in before.items() if not wait] == []
    touched = re.compile(r"\b(ld|st|atom|red)\.\S*global|cp\.async")  # a compiler may move loads ahead
    assert [name for name, (start, *_) in before.items() if touched.search(start)] == []
    assert all(touched.search(rest) for *_, rest in before.values())


def test_lanes_of_an_interior_point_agree_on_their_sums(gpu: Absent) -> None:
    """A product fused into a sum over lanes is rounded in the neighbours' and not in a lane's own."""
    from onefold.fast.interior_point import interior_point, interior_point_kernel

    slack, dual = torch.ones(2, 2, 3, dtype=torch.float64), torch.ones(2, 2, 3, dtype=torch.float64)
    curve, slope = torch.eye(3, dtype=torch.float64).expand(2, 3, 3), torch.zeros(2, 3, dtype=torch.float64)
    interior_point(slack, dual, curve, slope, iterations=2, back_off=0.995)
    assert gpu.launched == ["interior_point_kernel"]
    (kernel,) = next(iter(interior_point_kernel.device_caches.values()))[0].values()
    assert "mul.rn.f64" in kernel.asm["ptx"]
    assert "fma" not in kernel.asm["ptx"]


def test_convolutions_are_asked_for_and_computed(gpu: Absent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conv_kernels, "small", lambda *_, **__: True)
    x, g = (torch.rand(2, 16, 4, 4).contiguous(memory_format=torch.channels_last) for _ in range(2))
    w, bias = torch.rand(16, 16, 3, 3).contiguous(memory_format=torch.channels_last), torch.rand(16)
    found: list[Tensor] = []

    def convolve() -> None:
        found[:] = [
            conv_kernels.forward(x, w, bias, FIXED, True),
            conv_kernels.gradient_of_input(g, x, w, x.shape, FIXED),
            conv_kernels.gradient_of_weight(g, x, w, FIXED),
        ]

    compile_ahead(convolve)
    y = torch.conv2d(x, w, bias, padding=1)
    dx, dw, _ = torch.ops.aten.convolution_backward(g, x, w, None, *FIXED, [True, True, False])
    for mine, expected in zip(found, (y.relu(), dx, dw), strict=True):
        torch.testing.assert_close(mine, expected)
    assert gpu.launched == []
    asked = sorted(name for name, _ in gpu.compiled)
    assert asked == ["convolve_kernel", "convolve_kernel", "total_kernel", "weight_gradient_kernel"]
    convolve()
    assert sorted(gpu.launched) == asked
    assert len(gpu.compiled) == len(asked)


def test_what_fails_beside_others_is_compiled_alone(gpu: Absent, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen on a busy machine: one of two threads that compile the same function may fail."""
    import triton

    tried: list[str] = []

    def failing(**_: Any) -> None:
        tried.append(threading.current_thread().name)
        if len(tried) == 1:
            raise ValueError("beside others")

    monkeypatch.setattr(triton.knobs.compilation, "listener", failing)
    x, s = torch.rand(4, 3, 2, 2), torch.rand(2, 3)
    compile_ahead(lambda: passes.scaled_gradient(x, x, s))
    assert len(tried) == 2
    assert all(thread.startswith(ahead.NAME) for thread in tried)
    assert gpu.loaded == ["scaled_gradient_kernel"]
    passes.scaled_gradient(x, x, s)
    assert gpu.launched == ["scaled_gradient_kernel"]
    assert len(tried) == 2  # it was there


class Refusing(ThreadPoolExecutor):
    def submit(self, *_: Any, **__: Any) -> Future[Any]:
        raise RuntimeError("can't start new thread")


class Failing(ThreadPoolExecutor):
    def submit(self, *_: Any, **__: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_exception(MemoryError())
        return future


@pytest.mark.parametrize("threads", [Refusing, Failing])
def test_what_threads_cannot_compile_is_compiled_when_it_is_launched(
    threads: Callable[[], Executor], gpu: Absent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead, "threads", threads)
    x, made = torch.rand(3, 3, 4, 4), student()
    compile_ahead(lambda: gradients(made, x))
    assert gpu.compiled == []
    assert gpu.launched == []
    gradients(made, x)
    assert gpu.launched
    assert {name for name, _ in gpu.compiled} == set(gpu.launched)


def test_nothing_is_computed_where_triton_cannot_be_asked(gpu: Absent, monkeypatch: pytest.MonkeyPatch) -> None:
    import triton

    monkeypatch.delattr(triton, "AsyncCompileMode")
    compile_ahead(lambda: pytest.fail("computed"))
    assert gpu.compiled == []


def test_an_error_is_raised_and_leaves_kernels_that_run(gpu: Absent) -> None:
    def fails() -> None:
        gradients(made, x)
        raise ValueError("mine")

    x, made = torch.rand(3, 3, 4, 4), student()
    with pytest.raises(ValueError, match="mine"):
        compile_ahead(fails)
    gradients(made, x)
    assert gpu.launched


class OnTheHost(CapturedStep):
    def generators(self, device: torch.device) -> list[torch.Generator]:  # noqa: ARG002
        return [torch.default_generator]


def test_a_step_that_asks_is_taken_back(gpu: Absent) -> None:
    made, x, labels = student(), torch.rand(3, 3, 4, 4), torch.tensor([0, 1, 2])
    optimizer = torch.optim.SGD(made.parameters(), lr=0.1, momentum=0.9)
    losses: list[Tensor] = []

    def loss(x: Tensor, labels: Tensor) -> Tensor:
        moved = x + 0.1 * torch.randn_like(x)
        losses.append(torch.nn.functional.cross_entropy(made(moved).flatten(0, 1), labels.repeat(2)))
        return losses[-1]

    step = OnTheHost(training_step(loss, optimizer), [made], optimizer, True, print)
    before = copy.deepcopy(made.state_dict())
    random = torch.get_rng_state()
    with step.taken_back(x.device):
        step.compile_ahead(x, labels)
        assert any(not torch.equal(value, before[name]) for name, value in made.state_dict().items())
    assert len(losses) == 1
    assert losses[0].isfinite()
    assert gpu.compiled
    assert gpu.launched == []
    for name, value in made.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert torch.equal(torch.get_rng_state(), random)
    assert all(bool((state["momentum_buffer"] == 0).all()) for state in optimizer.state.values())


def test_a_step_is_taken_back_once_whatever_it_began_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = nn.Linear(2, 2)
    before = weight.weight.detach().clone()
    optimizer = torch.optim.SGD(weight.parameters(), lr=0.1)
    step = OnTheHost(training_step(lambda x, _: weight(x).sum(), optimizer), [weight], optimizer, True, print)
    late: list[Callable[[], object]] = [lambda: weight.weight.data.fill_(7)]  # a kernel on another stream
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: late.pop()())

    def breaks_off() -> None:
        with step.taken_back(torch.device("cuda")):
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        breaks_off()
    assert not late
    assert torch.equal(weight.weight, before)
