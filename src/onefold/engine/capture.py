"""Captures the whole step in one CUDA graph, which the host launches with a single call."""

from __future__ import annotations

import contextlib
import gc
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from onefold.engine.blame import told
from onefold.engine.distributed.world import ALONE, World
from onefold.engine.faithful import (
    Copies,
    Expected,
    Trace,
    check_repeatable,
    check_replay,
    nudge,
    traced,
    trained,
)
from onefold.engine.step import Step, TrainingStep
from onefold.fast.ahead import compile_ahead
from onefold.fast.kernels.counters import Counters, own_counters
from onefold.fast.streams import foremost, side_by_side

T = TypeVar("T")
WARM_UP = 3  # steps before the capture: they select kernels and create the optimizer's state
SHAPES = 3  # graphs at most: for full batches, for the last batch of an epoch, and one to spare


@dataclass
class Graph:
    """A captured step, with the tensors it reads from and writes to."""

    graph: torch.cuda.CUDAGraph
    x: Tensor
    labels: Tensor
    loss: Tensor
    gradients: list[tuple[nn.Parameter, Tensor | None]]
    counters: Counters | None = None
    expected: Expected | None = None
    """what its first replay is compared with"""


class CapturedStep:
    """A step that is captured the first time it sees an input shape, and replayed from then on.

    With `whole` the optimizer's update is captured, too; the optimizer must then read whatever changes between steps
    (such as the learning rate) from tensors. Otherwise forward and backward are captured, and the optimizer runs
    outside. Capturing takes a few warm-up steps, which are undone: weights, statistics, the optimizer's state and the
    random number generators are restored, so that training takes the same steps with and without capture.

    With several processes, all capture in the same step, because `world.batch_key` is new to all of them at once, and
    if one cannot, none does. A graph fixes how the batch is split among processes, so another split is another graph.
    `branches` lets independent parts of the step run concurrently, which must be off if they contain collectives.

    A graph whose first replay leaves other gradients, weights or statistics than the step run kernel by kernel is not
    used: the step is captured again without branches, and if that does not help, not at all.
    """

    def __init__(
        self,
        step: TrainingStep,
        modules: Sequence[nn.Module],
        optimizer: Optimizer,
        whole: bool,
        say: Callable[[str], None],
        world: World = ALONE,
        branches: bool = True,
    ) -> None:
        self.step, self.modules, self.optimizer, self.whole, self.say = step, modules, optimizer, whole, say
        self.world, self.branches = world, branches
        self.part: Step = step if whole else step.differentiate  # what is captured
        self.graphs: dict[tuple[Any, ...], Graph] = {}
        self.pool: Any = None
        self.side: torch.cuda.Stream | None = None
        self.failed = False

    def __call__(self, x: Tensor, labels: Tensor) -> Tensor:
        key = self.world.batch_key(x, labels)
        if key not in self.graphs:
            graph = None if self.failed or len(self.graphs) >= SHAPES else self.attempt(x, labels)
            if graph is None:
                return self.step(x, labels)
            self.graphs[key] = graph
        graph = self.graphs[key]
        if (graph.x.shape, graph.x.dtype) != (x.shape, x.dtype):
            # The other processes are about to replay their graphs: it is too late to run this step without one.
            raise ValueError(
                f"train: expected batches of one shape and type over several processes, got {list(graph.x.shape)} of "
                f"{graph.x.dtype} and {list(x.shape)} of {x.dtype}; turn the fast path off (--no-fast, fast=False)"
            )
        graph.x.copy_(x)
        graph.labels.copy_(labels)
        graph.graph.replay()
        if not self.whole:
            for parameter, gradient in graph.gradients:  # each graph (one per shape) writes to gradients of its own
                parameter.grad = gradient
            self.step.update()
        return graph.loss

    def attempt(self, x: Tensor, labels: Tensor) -> Graph | None:
        """A graph in all processes or None in all, so that the collectives of a step always match."""
        generators = self.generators(x.device)
        before = [generator.get_state() for generator in generators]
        graph, reason = self.agreed(lambda: self.capture(x, labels))
        captured = graph is not None
        if graph is not None:
            reason = self.difference(graph)
            if not reason:
                return graph
        self.graphs.clear()
        self.pool = self.side = graph = None
        torch.cuda.empty_cache()  # return the memory of the failed attempt
        if not captured:
            for generator, state in zip(generators, before, strict=True):
                renew(generator, state)
        if captured and self.branches:
            self.one_by_one()
            self.say(f"the parts of a captured step disturb one another and run one after another: {reason}")
            return self.attempt(x, labels)
        self.failed = True
        self.say(f"the step cannot be captured in a CUDA graph and runs kernel by kernel: {reason}")
        return None

    def agreed(self, work: Callable[[], T]) -> tuple[T | None, str]:
        """What the work returns; or None, in all processes, and why it failed in one of them."""
        value, reason = None, ""
        try:
            value = work()
        except Exception as error:  # a network may do anything that cannot be captured
            reason = told(error)
        reasons = [found for found in self.world.collected(reason) if found]
        return (None, reasons[0]) if reasons else (value, "")

    def generators(self, device: torch.device) -> list[torch.Generator]:
        """The random number generators a step draws from on its device."""
        index = torch.cuda.current_device() if device.index is None else device.index
        return [torch.cuda.default_generators[index], *self.world.generators]

    def close(self) -> None:
        """Releases the graphs: a process group cannot be destroyed while graphs hold its collectives."""
        for held in self.graphs.values():
            held.graph.reset()
        self.graphs.clear()
        self.failed = True

    def capture(self, x: Tensor, labels: Tensor) -> Graph:
        x, labels = x.clone(memory_format=torch.preserve_format), labels.clone()
        # One stream for all shapes: memory that a graph has freed can be reused only on the same stream.
        self.side = side = self.side or foremost()
        counters = Counters(x.device)
        with self.taken_back(x.device):
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side), searching():
                self.compile_ahead(x, labels)
                for _ in range(WARM_UP):
                    with side_by_side(self.branches):
                        self.part(x, labels)
        expected = Expected(self.uncaptured(x, labels, side), self.uncaptured(x, labels, side, nudged=True))
        check_repeatable(expected)
        self.optimizer.zero_grad(set_to_none=True)
        # A graph has its own memory pool, and running out of memory aborts the capture: return the warm-up's memory.
        torch.cuda.empty_cache()
        graph = torch.cuda.CUDAGraph()
        for generator in self.world.generators:  # torch's default generator is registered automatically
            graph.register_generator_state(generator)
        with warnings.catch_warnings(), searching(), side_by_side(self.branches), own_counters(counters):
            warnings.filterwarnings("ignore", message="Waiting for pending NCCL work")
            with no_collection(), torch.cuda.graph(graph, pool=self.pool, stream=side):
                loss = self.part(x, labels)
        self.pool = graph.pool()
        # A whole step has consumed its gradients; otherwise the gradients must stay where the graph writes them.
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        kept = [] if self.whole else [(p, p.grad) for p in parameters]
        return Graph(graph, x, labels, loss, kept, counters, expected)

    def uncaptured(self, x: Tensor, labels: Tensor, side: torch.cuda.Stream, nudged: bool = False) -> Trace:
        """What the step leaves kernel by kernel, on one stream. The step is taken back."""
        with contextlib.ExitStack() as stack:
            before = stack.enter_context(self.taken_back(x.device))
            stack.enter_context(self.on_one_stream())
            if nudged:
                nudge(trained(self.modules[0], self.optimizer))
                before = stack.enter_context(self.taken_back(x.device))
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side), searching():
                self.part(x, labels)
                return traced(self.modules, self.optimizer, before)

    def difference(self, graph: Graph) -> str:
        """What a replay, which is taken back, leaves otherwise than the step did uncaptured, in any of the processes;
        empty if there is no such thing, or no memory to tell."""
        reason = ""
        with contextlib.ExitStack() as stack:
            before, lacking = self.agreed(lambda: stack.enter_context(self.taken_back(graph.x.device)))
            if before is None:
                self.say(f"the captured step is used without having been compared: {lacking}")
            else:
                _, reason = self.agreed(partial(self.compare, graph, before))
        graph.expected = None  # its memory is no longer needed
        return reason

    def compare(self, graph: Graph, before: Copies) -> None:
        """Raises ValueError if a replay leaves something else; `before`: the tensors it changes, and copies of them."""
        if graph.expected is not None:
            graph.graph.replay()
            check_replay(traced(self.modules, self.optimizer, before), graph.expected, graph.x.device)

    @contextlib.contextmanager
    def on_one_stream(self) -> Iterator[None]:
        """Inside, the backward pass computes gradients of weights on its own stream, too."""
        gradients = self.step.gradients
        before = gradients is not None and gradients.aside
        if gradients is not None:
            gradients.aside = False
        try:
            yield
        finally:
            if gradients is not None:
                gradients.aside = before

    def one_by_one(self) -> None:
        """From now on everything in a step is on one stream."""
        self.branches = False
        if self.step.gradients is not None:
            self.step.gradients.aside = False

    def compile_ahead(self, x: Tensor, labels: Tensor) -> None:
        """Compiles all kernels of a step in parallel, by running one that is undone like the warm-up steps."""
        if self.world.size > 1:
            return  # it would add collectives, which a process that cannot run this step would miss
        # This needs more memory than an ordinary step. If there is too little, kernels are compiled one by one later.
        with contextlib.suppress(torch.OutOfMemoryError), side_by_side(self.branches):
            compile_ahead(partial(self.part, x, labels))

    @contextlib.contextmanager
    def taken_back(self, device: torch.device) -> Iterator[Copies]:
        """Restores weights, buffers, the optimizer's tensors and the random number generators on exit; yields those
        tensors with copies of them."""
        known = {id(p) for p in self.optimizer.state}
        tensors = [t for module in self.modules for t in (*module.parameters(), *module.buffers())]
        tensors += [t for state in self.optimizer.state.values() for t in state.values() if isinstance(t, Tensor)]
        tensors = list({id(t): t for t in tensors}.values())
        copies = [t.detach().clone() for t in tensors]
        generators = self.generators(device)
        random = [generator.get_state() for generator in generators]
        try:
            yield list(zip(tensors, copies, strict=True))
        finally:
            if device.type == "cuda":
                torch.cuda.synchronize(device)  # an aborted step may still have kernels running on other streams
            with torch.no_grad():
                for tensor, copy in zip(tensors, copies, strict=True):
                    tensor.copy_(copy)
                for parameter, state in self.optimizer.state.items():
                    if id(parameter) not in known:
                        for value in state.values():
                            if isinstance(value, Tensor):
                                value.zero_()  # state created inside: a momentum of zero is the same as none yet
            for generator, stood in zip(generators, random, strict=True):
                generator.set_state(stood)


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Inside, Python collects no garbage: in the middle of a capture, what it frees could call CUDA."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


@contextlib.contextmanager
def searching() -> Iterator[None]:
    """Inside, cuDNN benchmarks its kernels for every new shape and keeps the fastest.

    The winner, and with it the last bits of the results, may change from run to run. So if the user asked for
    determinism, cuDNN uses its heuristics, as it does outside.
    """
    cudnn = torch.backends.cudnn
    before = cudnn.benchmark
    cudnn.benchmark = before or not (cudnn.deterministic or torch.are_deterministic_algorithms_enabled())
    try:
        yield
    finally:
        cudnn.benchmark = before


def renew(generator: torch.Generator, state: Tensor) -> None:
    """Gives a generator a fresh state: an aborted capture leaves it waiting for the capture's end."""
    fresh = torch.Generator(generator.device)
    fresh.set_state(state)
    generator.graphsafe_set_state(fresh)
