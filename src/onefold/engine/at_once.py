"""How many runs share a GPU."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from onefold.engine.counting import count_forward
from onefold.engine.passes import passes_of_step, student_members
from onefold.methods import method_named
from onefold.recipe import Recipe

AT_ONCE = 4
# A step with less arithmetic leaves a part of an H200 idle. Measured there, four at once against one after the other:
# 37% less time at 0.05 TFLOP a step, 8% at 0.35 and at 0.65, 3% at 4.7.
ENOUGH = 1e12
# Bytes of a run, in outputs of its convolutions and products and in parameters of a network, generously: measured were
# 3.5 to 6.6 times the former.
OUTPUTS, PARAMETERS = 8, 16


def room_on(device: torch.device) -> int | None:
    """Bytes that are free on a GPU; None elsewhere."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else None


def at_once(net: nn.Module, example: Tensor, recipe: Recipe, room: int, *, student: bool) -> int:
    """One, or several where that raises the total rate, because a step is small, and where there is room for them."""
    forward, share = count_forward(net, example.shape), recipe.optim.batch_size / len(example)
    if passes_of_step(recipe, student=student) * forward.flops * share >= ENOUGH:
        return 1
    members = student_members(method_named(recipe.distill.method), recipe.members) if student else 1
    width = 4 if recipe.precision == "float32" else 2
    parameters = sum(p.numel() for p in net.parameters()) * (1 + recipe.members if student else 1)
    need = OUTPUTS * members * forward.activations * share * width + PARAMETERS * parameters
    return max(1, min(AT_ONCE, int(room // need)))
