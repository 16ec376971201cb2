"""What a student's network does across a whole batch (BatchNorm, dropout), when several processes share the batch."""

from __future__ import annotations

import copy
import warnings

import torch
from torch import Tensor

from onefold.engine.distributed.batch_norm import share_statistics
from onefold.engine.distributed.processes import Processes
from onefold.engine.distributed.world import World
from onefold.engine.keeping.pack import generator_states
from onefold.methods import AnyStudent


def with_common_statistics(student: AnyStudent, world: World) -> None:
    """Makes the student's BatchNorm use the examples of all processes in training; copies are ordinary networks."""
    if not isinstance(world, Processes) or world.size == 1:
        return
    left = share_statistics(student.net, world)
    if left and world.rank == 0:
        warnings.warn(
            f"layers {', '.join(left)} have a forward pass of their own, and so normalise over the examples of their "
            "own process only: the result depends on the number of processes",
            stacklevel=2,
        )


def draws_by_itself(student: AnyStudent, x: Tensor) -> bool:
    """Whether the network draws random numbers in training mode, as dropout does."""
    training = copy.deepcopy(student).train()
    with torch.random.fork_rng([x.device] if x.is_cuda else []), torch.no_grad():
        before = generator_states(x.device)
        training(x)
        after = generator_states(x.device)
    return any(not torch.equal(before[name], after[name]) for name in before)
