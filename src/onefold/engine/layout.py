"""How images and weights lie in memory during a training: channels innermost, where all networks take that.

Convolutions and norms are faster so, on a GPU and on a CPU. But a network may look at how its activations lie:
`x.view(len(x), -1)` behind a convolution is an error where channels are innermost.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from onefold.engine.alike import close
from onefold.engine.distributed.spread import SpreadTeachers
from onefold.engine.distributed.world import ALONE, World
from onefold.ensemble import Teachers
from onefold.fast.tf32 import tf32
from onefold.methods import AnyStudent

OUTERMOST, INNERMOST = torch.contiguous_format, torch.channels_last


def laid_out(x: Tensor, layout: torch.memory_format) -> Tensor:
    """Images as the networks of a training take them; what is no image stays as it is."""
    return x.contiguous(memory_format=layout) if x.dim() == 4 else x


def lay_out(module: nn.Module, layout: torch.memory_format = INNERMOST) -> None:
    """Weights of convolutions with their channels innermost, or outermost again."""
    for parameter in module.parameters():
        if parameter.dim() == 4:
            parameter.data = parameter.data.contiguous(memory_format=layout)


def layout_for(
    student: AnyStudent,
    teachers: Teachers | SpreadTeachers | None,
    x: Tensor,
    say: Callable[[str], None],
    world: World = ALONE,
) -> torch.memory_format:
    """Innermost where the student, in training and at rest, and all teachers answer the same so; in all processes."""
    own = teachers.own if isinstance(teachers, SpreadTeachers) else teachers
    networks = [] if own is None else list(own.networks)[: 1 if own.alike else None]
    convolving = any(p.dim() == 4 for network in (student, *networks) for p in network.parameters())
    if not any(world.collected(convolving and x.dim() == 4)):
        return OUTERMOST
    told = refusal("the student", student, x)
    for network in networks:
        told = told or refusal("the teachers", network, x)
    told = next((found for found in world.collected(told) if found), "")
    if told:
        say(told)
    return OUTERMOST if told else INNERMOST


@torch.no_grad()
def refusal(who: str, network: nn.Module, x: Tensor) -> str:
    """Why a network cannot take images and weights with their channels innermost; empty where it can."""
    student = isinstance(network, AnyStudent)
    inner = laid_out(x, INNERMOST)
    try:
        other = copy.deepcopy(network)
        lay_out(other)
        with tf32(False):
            expected = drawn(network.at_rest if student else network, x)
            found = drawn(other.at_rest if student else other, inner)
        if student:
            drawn(other.train(), inner)
    except Exception as error:  # whatever a network does that looks at its memory
        reason = str(error).strip().split("\n")[0] or type(error).__name__
    else:
        reason = "" if close(found, expected, network) else "its answers differ"
    return f"{who} cannot have channels innermost in memory, which would be faster: {reason}" if reason else ""


def drawn(network: Any, x: Tensor) -> Tensor:
    """Its answers; who draws, draws the same each time, and nobody else sees that numbers were drawn."""
    with torch.random.fork_rng([x.device] if x.is_cuda else []):
        torch.manual_seed(0)
        return torch.as_tensor(network(x)).float()
