"""Teachers that do not fit on one device: every process holds some of them and runs those."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn

from onefold.engine.distributed.processes import Processes
from onefold.engine.distributed.rows import gather_rows, sum_rows
from onefold.ensemble import Teachers
from onefold.ensemble.picking import check_index
from onefold.types import at_least_float32


def own_teachers(members: int, rank: int, size: int) -> range:
    """The teachers that a process holds; may be none if there are more processes than teachers."""
    return range(members * rank // size, members * (rank + 1) // size)


class SpreadTeachers(nn.Module):
    """M teachers spread over the processes of a world: maps `[B, ...]` to `[M, B, K]`, like `Teachers`.

    Called with its part of a batch, every process gathers the whole batch, runs its own teachers on it, and returns the
    outputs to the processes whose rows they are about; input gradients take the same way back. All processes must call
    it together. Picking a teacher needs no device sync: processes that do not hold it contribute zeros.
    """

    def __init__(self, own: Sequence[nn.Module], members: int, world: Processes) -> None:
        super().__init__()
        self.members, self.world = members, world
        self.held = own_teachers(members, world.rank, world.size)
        assert len(own) == len(self.held), "each process brings the teachers it holds"
        self.own = Teachers(own) if own else None
        self.classes: int | None = None

    def forward(self, x: Tensor, members: Tensor | None = None) -> Tensor:
        if members is None:
            return self.given_back(x, self.all_answers)
        check_index(members, self.members)
        return self.given_back(x, lambda whole: self.answers(whole, members, None))

    @contextlib.contextmanager
    def picking(self, members: Tensor) -> Iterator[Callable[[Tensor], Tensor]]:
        check_index(members, self.members)
        with contextlib.nullcontext() if self.own is None else self.own.picking(self.index(members)) as picked:
            yield lambda x: self.given_back(x, lambda whole: self.answers(whole, members, picked))

    def given_back(self, x: Tensor, answer: Callable[[Tensor], Tensor]) -> Tensor:
        part = self.world.part
        rows = [x.shape[0]] * self.world.size if part is None else [max(count, 1) for count in part.counts]
        answers = answer(gather_rows(x, rows, self.world)).to(at_least_float32(x).dtype)
        return sum_rows(answers, rows, self.world)

    def all_answers(self, whole: Tensor) -> Tensor:
        """`[M, B, K]`, with zeros for other processes' teachers."""
        own = None if self.own is None else self.own(whole)
        if self.classes is None:  # on the first call, because a process without teachers does not know it
            every = self.world.collected(0 if own is None else int(own.shape[-1]))
            self.classes = max(every)
            if any(count not in (0, self.classes) for count in every):
                raise ValueError(f"teachers: expected all of them to answer the same classes, got {sorted(set(every))}")
        if own is None:
            return self.nothing(whole, self.members)
        before, after = self.held.start, self.members - self.held.stop
        return torch.nn.functional.pad(own, (0, 0, 0, 0, before, after))

    def answers(self, whole: Tensor, members: Tensor, picked: Callable[[Tensor], Tensor] | None) -> Tensor:
        """`[m, B, K]` of the picked members, with zeros for other processes' teachers."""
        if self.own is None:
            return self.nothing(whole, members.shape[0])
        found = picked(whole) if picked is not None else self.own(whole, self.index(members))
        mine = (members >= self.held.start) & (members < self.held.stop)
        return torch.where(mine[:, None, None].to(found.device), found, 0.0)

    def index(self, members: Tensor) -> Tensor:
        """Local indices of the members; for other processes' teachers any valid index, whose outputs are ignored."""
        return (members - self.held.start).clamp(0, len(self.held) - 1)

    def nothing(self, whole: Tensor, count: int) -> Tensor:
        """Zeros that depend on the batch, so that this process takes part in the backward pass's collectives."""
        assert self.classes is not None, "all are asked before some are"
        return (0 * whole.flatten(1)[:, :1]).expand(count, -1, self.classes)
