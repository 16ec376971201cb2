"""The whole step in one CUDA graph: the host starts it with one call and is free again."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from onefold.engine.distributed.world import ALONE, World
from onefold.engine.step import Step, TrainingStep
from onefold.fast.ahead import compile_ahead
from onefold.fast.kernels.counters import Counters, own_counters
from onefold.fast.streams import foremost, side_by_side

WARM_UP = 3  # steps before the capture: they choose kernels and make the optimizer's state
SHAPES = 3  # graphs at most: the batch, the last one of an epoch, and one to spare


@dataclass
class Graph:
    """A captured step with the tensors it reads and writes."""

    graph: torch.cuda.CUDAGraph
    x: Tensor
    labels: Tensor
    loss: Tensor
    gradients: list[tuple[nn.Parameter, Tensor | None]]
    counters: Counters | None = None


class CapturedStep:
    """A step that is captured the first time it sees a shape, and replayed from then on.

    The `whole` step, where its optimizer reads from tensors whatever changes from step to step; else the loss and its
    gradient, and the optimizer updates outside. Capturing needs a few steps to warm up. They are taken back: weights,
    statistics, the optimizer's state and the random numbers stand as they were, so that a captured training takes the
    same steps as any other.

    Of several processes all capture in the same step, and all or none: `world.batch_key` is new to all at once. What
    their parts of a batch are is fixed in a graph, so that other parts are another graph. `branches`: independent parts
    of the step may overtake one another, which collectives must not.
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
        self.part: Step = step if whole else step.differentiate  # what a graph holds
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
            # The other processes are about to replay theirs: it is too late for a step without a graph.
            raise ValueError(
                f"train: expected batches of one shape and type over several processes, got {list(graph.x.shape)} of "
                f"{graph.x.dtype} and {list(x.shape)} of {x.dtype}; turn the fast path off (--no-fast, fast=False)"
            )
        graph.x.copy_(x)
        graph.labels.copy_(labels)
        graph.graph.replay()
        if not self.whole:
            for parameter, gradient in graph.gradients:  # another graph, of another shape, has others
                parameter.grad = gradient
            self.step.update()
        return graph.loss

    def attempt(self, x: Tensor, labels: Tensor) -> Graph | None:
        """A graph in all processes, or none in any: a step has the same collectives with and without."""
        generators = self.generators(x.device)
        before = [generator.get_state() for generator in generators]
        graph, reason = None, ""
        try:
            graph = self.capture(x, labels)
        except Exception as error:  # whatever a network does that a graph cannot hold
            reason = str(error).strip().split("\n")[0] or type(error).__name__
        reasons = [found for found in self.world.collected(reason) if found]
        if not reasons:
            return graph
        self.failed = True
        self.graphs.clear()
        self.pool = graph = None
        torch.cuda.empty_cache()  # the attempt's memory is nobody's now
        for generator, state in zip(generators, before, strict=True):
            renew(generator, state)
        self.say(f"the step cannot be captured in a CUDA graph and runs kernel by kernel: {reasons[0]}")
        return None

    def generators(self, device: torch.device) -> list[torch.Generator]:
        """What a step draws from on its device."""
        index = torch.cuda.current_device() if device.index is None else device.index
        return [torch.cuda.default_generators[index], *self.world.generators]

    def close(self) -> None:
        """Lets the graphs go: a group of processes cannot be left while graphs hold its collectives."""
        for held in self.graphs.values():
            held.graph.reset()
        self.graphs.clear()
        self.failed = True

    def capture(self, x: Tensor, labels: Tensor) -> Graph:
        x, labels = x.clone(memory_format=torch.preserve_format), labels.clone()
        # One stream for all shapes: what a graph has freed is used again on the stream it was for.
        self.side = side = self.side or foremost()
        counters = Counters(x.device)
        with self.taken_back(x.device):
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side), searching():
                self.compile_ahead(x, labels)
                for _ in range(WARM_UP):
                    with side_by_side(self.branches):
                        self.part(x, labels)
        self.optimizer.zero_grad(set_to_none=True)
        # A graph has memory of its own, and to find none left would break the capture off: the warm-up's goes back.
        torch.cuda.empty_cache()
        graph = torch.cuda.CUDAGraph()
        for generator in self.world.generators:  # torch's own is known to every graph
            graph.register_generator_state(generator)
        with warnings.catch_warnings(), searching(), side_by_side(self.branches), own_counters(counters):
            warnings.filterwarnings("ignore", message="Waiting for pending NCCL work")
            with torch.cuda.graph(graph, pool=self.pool, stream=side):
                loss = self.part(x, labels)
        self.pool = graph.pool()
        # A whole step has used its gradients up; those of half a step have to stay where the graph writes them.
        trained = [p for group in self.optimizer.param_groups for p in group["params"]]
        return Graph(graph, x, labels, loss, [] if self.whole else [(p, p.grad) for p in trained], counters)

    def compile_ahead(self, x: Tensor, labels: Tensor) -> None:
        """All kernels of a step, in one that is taken back like those that warm up."""
        if self.world.size > 1:
            return  # that step has collectives of its own, and a process that cannot take it would miss them
        # It needs more memory than a step does. Where there is none, the kernels are compiled one after the other.
        with contextlib.suppress(torch.OutOfMemoryError), side_by_side(self.branches):
            compile_ahead(partial(self.part, x, labels))

    @contextlib.contextmanager
    def taken_back(self, device: torch.device) -> Iterator[None]:
        """Whatever happens inside to weights, buffers, the optimizer's tensors and the random numbers is undone."""
        known = {id(p) for p in self.optimizer.state}
        tensors = [t for module in self.modules for t in (*module.parameters(), *module.buffers())]
        tensors += [t for state in self.optimizer.state.values() for t in state.values() if isinstance(t, Tensor)]
        tensors = list({id(t): t for t in tensors}.values())
        copies = [t.detach().clone() for t in tensors]
        generators = self.generators(device)
        random = [generator.get_state() for generator in generators]
        try:
            yield
        finally:
            if device.type == "cuda":
                torch.cuda.synchronize(device)  # a step that broke off may have kernels under way on other streams
            with torch.no_grad():
                for tensor, copy in zip(tensors, copies, strict=True):
                    tensor.copy_(copy)
                for parameter, state in self.optimizer.state.items():
                    if id(parameter) not in known:
                        for value in state.values():
                            if isinstance(value, Tensor):
                                value.zero_()  # a momentum of zero is what none was
            for generator, stood in zip(generators, random, strict=True):
                generator.set_state(stood)


@contextlib.contextmanager
def searching() -> Iterator[None]:
    """cuDNN tries its kernels on every shape that is new to it inside, and keeps to the fastest.

    Which one that is may change from run to run, and with it the last bits: where somebody has asked for determinism,
    cuDNN guesses, as it does outside.
    """
    cudnn = torch.backends.cudnn
    before = cudnn.benchmark
    cudnn.benchmark = before or not (cudnn.deterministic or torch.are_deterministic_algorithms_enabled())
    try:
        yield
    finally:
        cudnn.benchmark = before


def renew(generator: torch.Generator, state: Tensor) -> None:
    """A capture that broke off leaves a generator waiting for its end: it gets a new state."""
    fresh = torch.Generator(generator.device)
    fresh.set_state(state)
    generator.graphsafe_set_state(fresh)
