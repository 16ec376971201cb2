"""The whole step in one CUDA graph: the host starts it with one call and is free again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from onefold.engine.step import Step, TrainingStep
from onefold.fast.streams import side_by_side

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


class CapturedStep:
    """A step that is captured the first time it sees a shape, and replayed from then on.

    The `whole` step, where its optimizer reads from tensors whatever changes from step to step; else the loss and its
    gradient, and the optimizer updates outside. Capturing needs a few steps to warm up. They are taken back: weights,
    statistics, the optimizer's state and the random numbers stand as they were, so that a captured training takes the
    same steps as any other.
    """

    def __init__(
        self,
        step: TrainingStep,
        modules: Sequence[nn.Module],
        optimizer: Optimizer,
        whole: bool,
        say: Callable[[str], None],
    ) -> None:
        self.step, self.modules, self.optimizer, self.whole, self.say = step, modules, optimizer, whole, say
        self.captured: Step = step if whole else step.differentiate
        self.graphs: dict[tuple[Any, ...], Graph] = {}
        self.pool: Any = None
        self.failed = False

    def __call__(self, x: Tensor, labels: Tensor) -> Tensor:
        key = (x.shape, x.dtype, x.stride(), labels.shape)
        graph = self.graphs.get(key)
        if graph is None:
            if self.failed or len(self.graphs) >= SHAPES:
                return self.step(x, labels)
            random = torch.cuda.get_rng_state(x.device)
            try:
                graph = self.graphs[key] = self.capture(x, labels)
            except Exception as error:  # whatever a network does that a graph cannot hold
                self.failed = True
                self.graphs.clear()
                renew_generator(x.device, random)
                reason = str(error).strip().split("\n")[0]
                self.say(f"the step cannot be captured in a CUDA graph and runs kernel by kernel: {reason}")
                return self.step(x, labels)
        graph.x.copy_(x)
        graph.labels.copy_(labels)
        graph.graph.replay()
        if not self.whole:
            for parameter, gradient in graph.gradients:  # another graph, of another shape, has others
                parameter.grad = gradient
            self.step.update()
        return graph.loss

    def capture(self, x: Tensor, labels: Tensor) -> Graph:
        x, labels = x.clone(memory_format=torch.preserve_format), labels.clone()
        side = torch.cuda.Stream()
        with self.taken_back():
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side), side_by_side():
                for _ in range(WARM_UP):
                    self.captured(x, labels)
            torch.cuda.current_stream().wait_stream(side)
            torch.cuda.synchronize()
        self.optimizer.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        with side_by_side(), torch.cuda.graph(graph, pool=self.pool):
            loss = self.captured(x, labels)
        self.pool = graph.pool()
        # A whole step has used its gradients up; those of half a step have to stay where the graph writes them.
        trained = [p for group in self.optimizer.param_groups for p in group["params"]]
        return Graph(graph, x, labels, loss, [] if self.whole else [(p, p.grad) for p in trained])

    @contextlib.contextmanager
    def taken_back(self) -> Iterator[None]:
        """Whatever happens inside to weights, buffers, the optimizer's tensors and the random numbers is undone."""
        known = {id(p) for p in self.optimizer.state}
        tensors = [t for module in self.modules for t in (*module.parameters(), *module.buffers())]
        tensors += [t for state in self.optimizer.state.values() for t in state.values() if isinstance(t, Tensor)]
        tensors = list({id(t): t for t in tensors}.values())
        copies = [t.detach().clone() for t in tensors]
        random = torch.cuda.get_rng_state()
        try:
            yield
        finally:
            with torch.no_grad():
                for tensor, copy in zip(tensors, copies, strict=True):
                    tensor.copy_(copy)
                for parameter, state in self.optimizer.state.items():
                    if id(parameter) not in known:
                        for value in state.values():
                            if isinstance(value, Tensor):
                                value.zero_()  # a momentum of zero is what none was
            torch.cuda.set_rng_state(random)


def renew_generator(device: torch.device, state: Tensor) -> None:
    """A capture that broke off leaves the generator waiting for its end: the default one gets a new state."""
    fresh = torch.Generator(device)
    fresh.set_state(state)
    index = torch.cuda.current_device() if device.index is None else device.index
    torch.cuda.default_generators[index].graphsafe_set_state(fresh)
