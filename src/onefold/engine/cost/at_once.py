"""How many runs to interleave on a GPU."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from onefold.data import Source
from onefold.engine.cost.counting import count_forward
from onefold.engine.cost.memory import memory
from onefold.engine.cost.passes import passes_of_step
from onefold.methods import Method
from onefold.recipe import Recipe

AT_ONCE = 4
# Steps with less arithmetic leave part of an H200 idle. Measured there, four runs at once compared with one after
# another: 38% less time at 0.04 TFLOP per step, 16% at 0.3, 9% at 0.65, 2% at 4.7.
ENOUGH = 1e12
ONE_BY_ONE = "one after the other, because one step already fills it, or because it has no memory for two"
SPARE = 1.5  # the estimate of memory may be a quarter too low


def room_on(device: torch.device) -> int | None:
    """Free memory of a GPU in bytes; None for other devices."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else None


def at_once(
    net: nn.Module, example: Tensor, recipe: Recipe, source: Source, room: int, method: Method, *, student: bool
) -> int:
    """How many runs to interleave: several if steps are small, so that this raises the total rate, and if they fit into
    memory; else one."""
    forward = count_forward(net, example.shape).flops / len(example) * recipe.optim.batch_size
    if passes_of_step(recipe, student=student) * forward >= ENOUGH:
        return 1
    return max(1, min(AT_ONCE, int(room // (SPARE * memory(recipe, source, net, method)))))
