"""What is done with a captured step whose gradients are wrong; on a CPU, where a graph is only pretended."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from onefold.engine import capture
from onefold.engine.capture import CapturedStep
from onefold.engine.distributed.world import World
from onefold.engine.step import training_step
from onefold.fast import streams
from onefold.fast.convolve import Gradients

Fault = Callable[[nn.Module, bool], None]  # disturbs the gradients of a network, captured side by side or not


class OnTheHost(CapturedStep):
    def generators(self, device: torch.device) -> list[torch.Generator]:  # noqa: ARG002
        return [torch.default_generator]

    def compile_ahead(self, x: Tensor, labels: Tensor) -> None:
        pass


class Pretended:
    """In place of a CUDA graph: takes the step once more at every replay, with the fault."""

    fault: Fault
    captured: int
    replayed: int

    def __init__(self) -> None:
        self.step: Any = None
        self.inputs: tuple[Tensor, ...] = ()
        self.loss, self.side_by_side = torch.zeros(()), False

    def pool(self) -> int:
        return 0

    def replay(self) -> None:
        Pretended.replayed += 1
        self.loss.copy_(self.step.take(*self.inputs).detach())
        Pretended.fault(self.step.modules[0], self.side_by_side)


class Side:
    def wait_stream(self, other: object) -> None:
        pass


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[CapturedStep, list[str]]]:
    """Makes a step that can be captured, and the list of what it says; the network has two layers."""

    @contextlib.contextmanager
    def graph(pretended: Pretended, **_: Any) -> Iterator[None]:
        assert not gc.isenabled()
        Pretended.captured += 1
        step = pretended.step = CURRENT[-1]
        pretended.side_by_side = streams.ROOM.get() is not None
        take = step.part
        step.take = take

        def recorded(*inputs: Tensor) -> Tensor:
            pretended.inputs = inputs
            pretended.loss = take(*inputs).detach().clone()
            return pretended.loss

        step.part = recorded
        with step.taken_back(torch.device("cpu")):  # capturing computes nothing
            yield
        step.part = take

    CURRENT: list[Any] = []
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Pretended)
    monkeypatch.setattr(torch.cuda, "graph", graph)
    monkeypatch.setattr(torch.cuda, "stream", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda *_: None)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(capture, "foremost", Side)
    monkeypatch.setattr(capture, "renew", lambda generator, state: generator.set_state(state))

    def make(fault: Fault, **given: Any) -> tuple[CapturedStep, list[str]]:
        Pretended.fault = staticmethod(fault)
        Pretended.captured = Pretended.replayed = 0
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

        def loss(x: Tensor, labels: Tensor) -> Tensor:
            return nn.functional.cross_entropy(net(x + 0.1 * torch.randn_like(x)), labels)

        said: list[str] = []
        step = OnTheHost(training_step(loss, optimizer), [net], optimizer, True, said.append, **given)
        CURRENT.append(step)
        return step, said

    return make


def batches(count: int) -> list[tuple[Tensor, Tensor]]:
    draws = torch.Generator().manual_seed(1)
    return [(torch.rand(8, 6, generator=draws), torch.randint(3, (8,), generator=draws)) for _ in range(count)]


def taken(step: CapturedStep) -> list[Tensor]:
    torch.manual_seed(3)
    return [step(x, labels).detach().clone() for x, labels in batches(4)]


def honest(_net: nn.Module, _side_by_side: bool) -> None:
    pass


def lost(net: nn.Module, side_by_side: bool = True) -> None:
    """As if other kernels had written to the memory of one gradient, where parts run side by side."""
    if side_by_side:
        gradient = net.get_parameter("0.weight").grad
        assert gradient is not None
        gradient.copy_(gradient.flip(0))


Make = Callable[..., tuple[CapturedStep, list[str]]]


def test_a_graph_with_the_step_s_gradients_is_replayed(made: Make) -> None:
    step, said = made(honest)
    expected = copy.deepcopy(step.modules[0])
    random = torch.get_rng_state()
    graph = step.attempt(*batches(1)[0])
    assert graph is not None, said
    assert torch.equal(torch.get_rng_state(), random)
    for name, value in step.modules[0].state_dict().items():
        assert torch.equal(value, expected.state_dict()[name]), name
    assert (Pretended.captured, Pretended.replayed, said) == (1, 1, [])
    assert gc.isenabled()
    assert graph.expected is None  # whose memory it no longer takes
    assert all(not state["momentum_buffer"].any() for state in step.optimizer.state.values())
    taken(step)
    assert (Pretended.captured, said) == (2, [])  # the first one was not kept by the step


def test_parts_that_disturb_one_another_run_one_after_another(made: Make) -> None:
    right = taken(made(honest)[0])
    step, said = made(lost)
    assert all(torch.equal(a, b) for a, b in zip(taken(step), right, strict=True))
    assert step.graphs
    assert Pretended.captured == 2
    assert said == [
        "the parts of a captured step disturb one another and run one after another: the gradient of 0.weight differs"
    ]


@pytest.mark.parametrize("branches", [True, False])
def test_a_step_that_no_graph_takes_rightly_runs_kernel_by_kernel(made: Make, branches: bool) -> None:
    right = taken(made(honest)[0])
    step, said = made(lambda net, _: lost(net), branches=branches)
    assert all(torch.equal(a, b) for a, b in zip(taken(step), right, strict=True))
    assert not step.graphs
    assert len(said) == 1 + branches
    assert said[-1] == (
        "the step cannot be captured in a CUDA graph and runs kernel by kernel: the gradient of 0.weight differs"
    )


def test_what_rounding_alone_decides_is_not_blamed(made: Make) -> None:
    """A bias before a BatchNorm has a gradient of nothing but rounding: nudged weights change all of it."""

    def rounded(net: nn.Module, _: bool) -> None:
        bias = net.get_parameter("0.bias")
        assert bias.grad is not None
        bias.grad.neg_()
        for p in net.parameters():
            assert p.grad is not None
            p.grad.mul_(1 + 0.01 * torch.randn(p.shape, generator=torch.Generator().manual_seed(5)))

    step, said = made(rounded)
    assert step.attempt(*batches(1)[0]) is not None
    assert said == []


def test_updates_and_statistics_are_compared_too(made: Make) -> None:
    def elsewhere(name: str) -> Fault:
        def fault(net: nn.Module, _: bool) -> None:
            with torch.no_grad():
                net.state_dict()[name].sub_(0.3)

        return fault

    for name in ("3.weight", "1.running_var"):
        step, said = made(elsewhere(name))
        assert step.attempt(*batches(1)[0]) is None
        assert said[-1].endswith(f"kernel by kernel: the update of {name} differs")


def test_a_step_that_takes_another_path_each_time_is_not_captured(made: Make) -> None:
    step, said = made(honest)
    often = iter(range(100))
    idle = nn.Parameter(torch.ones(()))
    step.modules[0].register_parameter("idle", idle)
    step.optimizer.add_param_group({"params": [idle]})
    step.part = lambda x, labels: taken_with(step, x, labels, next(often) % 2)
    assert step.attempt(*batches(1)[0]) is None
    assert Pretended.captured == 0
    assert said == [
        "the step cannot be captured in a CUDA graph and runs kernel by kernel: "
        "the gradient of idle is there in one run and not in the next"
    ]


def taken_with(step: CapturedStep, x: Tensor, labels: Tensor, idle: int) -> Tensor:
    loss = step.step(x, labels)
    step.modules[0].get_parameter("idle").grad = torch.ones(()) if idle else None
    return loss


def test_a_graph_is_used_where_there_is_no_memory_to_compare_it(made: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    step, said = made(honest)

    def full(_: torch.device) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    graph = step.capture(*batches(1)[0])
    monkeypatch.setattr(step, "taken_back", full)
    assert step.difference(graph) == ""
    assert (Pretended.replayed, graph.expected) == (0, None)
    assert said == ["the captured step is used without having been compared: CUDA out of memory"]


def test_what_any_process_finds_all_go_by(made: Make) -> None:
    class Two(World):
        """Another process, which says the same as this one but for the second question."""

        asked = 0

        def collected(self, value: Any) -> list[Any]:
            self.asked += 1
            return [value, "found elsewhere" if self.asked == 3 else value]

    step, said = made(honest, world=Two(), branches=False)
    assert step.attempt(*batches(1)[0]) is None
    assert said == ["the step cannot be captured in a CUDA graph and runs kernel by kernel: found elsewhere"]


def test_gradients_of_weights_are_aside_only_where_the_graph_is_right(made: Make) -> None:
    seen: list[bool] = []
    for fault, aside in ((honest, True), (lost, False)):
        step, _ = made(fault)
        gradients = Gradients.__new__(Gradients)
        gradients.aside = True
        step.step = dataclasses.replace(step.step, gradients=gradients)
        part = step.part
        seen.clear()

        def watched(x: Tensor, labels: Tensor, part: Any = part, gradients: Gradients = gradients) -> Tensor:
            seen.append(gradients.aside)
            return torch.as_tensor(part(x, labels))

        step.part = watched
        assert step.attempt(*batches(1)[0]) is not None
        assert gradients.aside == aside
        assert seen[:3] == [True] * 3, "the warm-up is as the graph will be"
        assert seen[3:5] == [False] * 2, "what it is compared with is on one stream"


def test_other_graphs_are_dropped_and_generators_stay(made: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph draws from the state its generator had then, and other runs draw from the same generator."""
    step, _ = made(honest)
    x, labels = batches(1)[0]
    step(x, labels)
    assert len(step.graphs) == 1
    monkeypatch.setattr(capture, "renew", lambda *_: pytest.fail("no capture was broken off"))
    Pretended.fault = staticmethod(lost)
    step(x[:5], labels[:5])
    assert list(step.graphs) == [step.world.batch_key(x[:5], labels[:5])]


@pytest.mark.parametrize("odd", ["missing", "not a number", "too long"])
def test_other_faults(made: Make, odd: str) -> None:
    def faulty(net: nn.Module, _: bool) -> None:
        weight = net.get_parameter("3.weight")
        assert weight.grad is not None
        if odd == "missing":
            weight.grad = None
        else:
            weight.grad.mul_(float("nan") if odd == "not a number" else 2.26)

    step, said = made(faulty)
    assert step.attempt(*batches(1)[0]) is None
    found = "the gradient of 3.weight " + ("is only there in one of the two" if odd == "missing" else "differs")
    assert all(line.endswith(found) for line in said)
    assert len(said) == 2


def test_what_is_no_number_is_seen_wherever_it_is(made: Make) -> None:
    """Also in a gradient of nothing but rounding."""

    def faulty(net: nn.Module, _: bool) -> None:
        bias = net.get_parameter("0.bias").grad
        assert bias is not None
        bias[0] = float("nan")

    step, said = made(faulty)
    assert step.attempt(*batches(1)[0]) is None
    assert said[-1].endswith("kernel by kernel: the gradient of 0.bias differs")
