"""Several processes, connected by torch.distributed: gloo for CPU memory, NCCL between GPUs."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import Store
from torch.nn.parameter import is_lazy

from onefold.engine.distributed.draws import SharedDraws
from onefold.engine.distributed.failing import Abandoned, Lost, failed, tells_of_others
from onefold.engine.distributed.part import Part
from onefold.engine.distributed.world import Batch, Value, World
from onefold.engine.keeping.pack import generator_states, set_generator_states
from onefold.metrics.accumulator import Accumulator

CPU = torch.device("cpu")
LOOK = 1.0  # seconds between two consultations, approximately
PAUSE = 0.1  # seconds between two polls in `wait`
MOST = 1000  # steps between two consultations, at most


class Processes(World):
    """Collectives on tensors run on the tensors' device; everything else goes through gloo on the CPU.

    All processes must make the same calls in the same order. The loop ensures that: every condition that decides
    whether a call is made is the same in all of them.
    """

    def __init__(self, rank: int, size: int, local_rank: int, store: Store, host: dist.ProcessGroup | None) -> None:
        self.rank, self.size, self.local_rank = rank, size, local_rank
        self.store, self.host = store, host
        self.key: tuple[Any, ...] = ()
        self.batch: Part | None = None
        self.part: Part | None = None
        self.example: Tensor | None = None
        self.shared = SharedDraws(lambda: self.part)
        self.countdown, self.steps, self.since = 1, 1, time.monotonic()
        self.waits = 0

    @property
    def draws(self) -> SharedDraws:
        return self.shared

    # A batch and its parts

    def take(self, x: Tensor, labels: Tensor, counts: Sequence[int] | None) -> Batch:
        # A user's DataLoader may give each process a different shape.
        every = self.collected((tuple(x.shape), str(x.dtype))) if counts is None else []
        known = tuple([shape[0] for shape, _ in every] if counts is None else counts)
        self.key = known, tuple(every)
        self.batch = self.part = Part(known, self.rank)
        assert x.shape[0] == self.batch.counted, "the loader gives what it says"
        if self.batch.counted:
            if self.example is None:
                self.example = x[:1].clone()
            return x, labels
        # An example, because zeros may have no finite outputs: an empty sentence, an image without any contrast.
        example = x.new_zeros(1, *x.shape[1:]) if self.example is None else self.example
        return example, labels.new_zeros(1)

    def rest(self) -> None:
        self.batch = self.part = self.example = None

    def examples(self, x: Tensor) -> int:  # noqa: ARG002
        assert self.batch is not None
        return self.batch.whole

    def pieces(self, x: Tensor, labels: Tensor, wanted: int) -> Iterator[tuple[Tensor, Tensor, float]]:
        assert self.batch is not None
        whole, places = self.batch.whole, self.batch.pieces(wanted)
        split = zip(x.tensor_split(len(places)), labels.tensor_split(len(places)), places, strict=True)
        for part, answers, place in split:
            self.part = place
            yield part, answers, place.counted / whole
        self.part = self.batch

    def smallest_piece(self, batch: int, wanted: int) -> int:
        counts = tuple(batch * (r + 1) // self.size - batch * r // self.size for r in range(self.size))
        return min(piece.whole for piece in Part(counts, self.rank).pieces(wanted))

    def summed(self, parameters: Sequence[nn.Parameter], loss: Tensor) -> Tensor:
        if self.size == 1:
            return loss
        trained = [p for p in parameters if p.requires_grad and not is_lazy(p)]
        missing = [k for k, p in enumerate(trained) if p.grad is None]  # an expert or a layer that was left out here
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in trained]
        used = loss.new_ones(len(trained))
        for k in missing:
            used[k].zero_()
        self.sum_([*gradients, used, loss])
        if missing and not (loss.is_cuda and torch.cuda.is_current_stream_capturing()):  # asks the device
            counts = used.tolist()
            for k in missing:  # a parameter that no process has used keeps none, as in a single process
                trained[k].grad = gradients[k] if counts[k] else None
        return loss

    @torch.no_grad()
    def share(self, net: nn.Module) -> None:
        tensors = [t for t in (*net.parameters(), *net.buffers()) if not is_lazy(t)]
        if not tensors:
            return
        flat = torch.cat([t.detach().reshape(-1).view(torch.uint8) for t in tensors])
        collective(dist.broadcast, flat, 0)
        for own, first in zip(tensors, flat.split([t.nbytes for t in tensors]), strict=True):
            own.copy_(first.clone().view(own.dtype).view(own.shape))  # a copy, because a view has to be aligned

    def batch_key(self, x: Tensor, labels: Tensor) -> tuple[Any, ...]:  # noqa: ARG002
        return self.key

    @property
    def counted(self) -> bool:
        return self.part is None or self.part.counted > 0

    @torch.no_grad()
    def sum_(self, tensors: Sequence[Tensor]) -> None:
        """One collective per dtype, however many tensors there are."""
        for dtype in sorted({t.dtype for t in tensors}, key=str):
            alike = [t for t in tensors if t.dtype == dtype]
            if len(alike) == 1 and alike[0].is_contiguous():
                collective(dist.all_reduce, alike[0])
                continue
            flat = torch.cat([t.reshape(-1) for t in alike])
            collective(dist.all_reduce, flat)
            for own, total in zip(alike, flat.split([t.numel() for t in alike]), strict=True):
                own.copy_(total.view_as(own))

    def rows_of_all(self, row: Tensor) -> Tensor:
        rows = row.new_empty(self.size, *row.shape)
        collective(dist.all_gather_into_tensor, rows.flatten(), row.contiguous().flatten())
        return rows

    # Random numbers

    @property
    def generators(self) -> list[torch.Generator]:
        return [] if self.shared.generator is None else [self.shared.generator]

    def seed(self, common: int, own: int, device: torch.device, network_draws: bool) -> None:
        separate = network_draws and self.size > 1
        torch.manual_seed(own if separate else common)
        self.shared.generator = torch.Generator(device).manual_seed(common) if separate else None

    def random_state(self, device: torch.device) -> dict[str, Any]:
        own = generator_states(device)
        if self.shared.generator is None:
            return own
        return own | {device.type: self.shared.generator.get_state(), "own": self.collected(own)}

    def set_random_state(self, state: dict[str, Any], device: torch.device) -> None:
        if self.shared.generator is None:
            return set_generator_states(state, device)
        self.shared.generator.set_state(state[device.type])
        if self.rank < len(state.get("own", [])):  # a process that did not exist before keeps its seed
            set_generator_states(state["own"][self.rank], device)
        return None

    # Agreement

    def merge(self, metrics: Accumulator) -> None:
        # On the CPU: a process that has seen no batch does not know the others' device.
        collective(metrics.to(CPU).all_reduce, self.host)

    def first(self, function: Callable[[], Value]) -> Value:
        found: list[Any] = [False, None]
        if self.rank == 0:
            try:
                found = [True, function()]
            finally:
                collective(dist.broadcast_object_list, found, src=0, group=self.host, device=CPU)
        else:
            collective(dist.broadcast_object_list, found, src=0, group=self.host, device=CPU)
        if not found[0]:
            raise Abandoned("the first process has stopped")
        value: Value = found[1]
        return value

    def in_turn(self, function: Callable[[], Value]) -> Value:
        turn = 0 if self.rank == 0 else 1 if self.local_rank == 0 else 2  # machines may not share a file system
        found = []
        for now in range(3):
            if now == turn:
                found.append(function())
            self.wait()
        return found[0]

    def wait(self) -> None:
        self.waits += 1
        place = f"onefold/wait/{self.waits}"
        here = self.store.add(place, 1)
        while here < self.size:  # polls the store, because a collective would time out
            if failed(self.store):
                raise Lost("another process has ended")
            time.sleep(PAUSE)
            here = self.store.add(place, 0)

    def collected(self, value: Value) -> list[Value]:
        values: list[Any] = [None] * self.size
        collective(dist.all_gather_object, values, value, group=self.host)
        return values

    def gathered(self, value: Value) -> list[Value] | None:
        values: list[Any] | None = [None] * self.size if self.rank == 0 else None
        collective(dist.gather_object, value, values, dst=0, group=self.host)
        return values

    def consult(
        self, told: signal.Signals | None, due: bool, *, now: bool = False
    ) -> tuple[signal.Signals | None, bool]:
        """Communicates only about once a second, so that steps are not slowed down; the first process decides after how
        many steps to do so again."""
        self.countdown -= 1
        if self.countdown > 0 and not now:
            return None, False
        seconds, done = time.monotonic() - self.since, self.steps - max(self.countdown, 0)
        following = min(MOST, max(1, round(done * LOOK / max(seconds, 1e-6))))
        told_all = self.collected((0 if told is None else int(told), due, following))
        self.countdown = self.steps = told_all[0][2]
        self.since = time.monotonic()
        number = max(number for number, _, _ in told_all)
        return (signal.Signals(number) if number else None), told_all[0][1]


def collective(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> None:
    """Runs a collective; raises `Lost` if it fails because another process is gone. Other errors are this process's
    own."""
    try:
        function(*arguments, **keywords)
    except RuntimeError as error:
        if not tells_of_others(error):
            raise
        said, _, _ = str(error).partition("\n")
        raise Lost(f"another process has ended ({said})") from error
