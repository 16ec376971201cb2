"""How images and weights lie in memory during a training: channels innermost, where a step takes that.

Convolutions and norms are faster so, on a GPU and on a CPU. But whatever has a part in a step may look at how its
tensors lie: `x.view(len(x), -1)` behind a convolution is an error where channels are innermost. So a step is tried.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from onefold.engine.alike import close, fill_zeros
from onefold.engine.distributed.spread import SpreadTeachers
from onefold.engine.distributed.world import ALONE, World
from onefold.ensemble import Teachers
from onefold.ensemble.student import logits_of
from onefold.fast.tf32 import tf32
from onefold.methods import AnyStudent

OUTERMOST, INNERMOST = torch.contiguous_format, torch.channels_last


def innermost(x: Tensor) -> Tensor:
    """Images with their channels innermost; what is no image stays as it is."""
    return x.contiguous(memory_format=INNERMOST) if x.dim() == 4 else x


def lay_out(module: nn.Module, layout: torch.memory_format = INNERMOST) -> None:
    """Weights of convolutions with their channels innermost, or outermost again."""
    for parameter in module.parameters():
        if parameter.dim() == 4:
            parameter.data = parameter.data.contiguous(memory_format=layout)


def layout_for(
    student: AnyStudent,
    teachers: Teachers | SpreadTeachers | None,
    x: Tensor,
    step: Callable[[AnyStudent], object],
    say: Callable[[str], None],
    world: World = ALONE,
) -> torch.memory_format:
    """Innermost where the student and all teachers answer the same so, and a whole step goes through; in all processes.

    `step` takes one with a copy of the student and images whose channels are innermost.
    """
    own = teachers.own if isinstance(teachers, SpreadTeachers) else teachers
    networks = [] if own is None else list(own.networks)[: 1 if own.alike else None]
    convolving = any(p.dim() == 4 for network in (student, *networks) for p in network.parameters())
    if not any(world.collected(convolving)):
        return OUTERMOST
    other = copy.deepcopy(student)
    reason = refusal("the student", partial(of_student, other, x), x.device)
    for network in networks:
        reason = reason or refusal("the teachers", partial(of_teacher, network, x), x.device)
    # Processes take a step together, or none of them does.
    found = next((told for told in world.collected(reason) if told), "")
    if not found:
        reason = refusal("a step", partial(of_step, other, step), x.device)
        found = next((told for told in world.collected(reason) if told), "")
    if found:
        say(found)
    return OUTERMOST if found else INNERMOST


def refusal(who: str, ask: Callable[[], bool], device: torch.device) -> str:
    """Why somebody cannot have channels innermost; empty where they can. Nobody else sees that numbers were drawn."""
    try:
        with torch.random.fork_rng([device] if device.type == "cuda" else []), tf32(False):
            reason = "" if ask() else "its answers differ"
    except Exception as error:  # whatever they do that looks at its memory
        reason = str(error).strip().split("\n")[0] or type(error).__name__
    return f"{who} cannot have channels innermost in memory, which would be faster: {reason}" if reason else ""


@torch.no_grad()
def of_student(other: AnyStudent, x: Tensor) -> bool:
    """Whether a copy of a student answers the same with its weights laid out, as they are from here on."""
    fill_zeros(other)
    ask = partial(drawn, other.at_rest)
    expected, again = ask(x), ask(x, seed=1)
    lay_out(other)
    return close(ask(innermost(x)), expected, other) or not close(again, expected, other)


@torch.no_grad()
def of_teacher(network: nn.Module, x: Tensor) -> bool:
    ask = partial(drawn, partial(logits_of, network))
    expected = ask(x)
    return close(ask(innermost(x)), expected, network) or not close(ask(x, seed=1), expected, network)


def drawn(network: Callable[[Tensor], Tensor], x: Tensor, seed: int = 0) -> Tensor:
    """Answers of a network that may draw numbers. On maps it draws in the order of the memory: such answers differ."""
    torch.manual_seed(seed)
    return network(x).float()


def of_step(other: AnyStudent, step: Callable[[AnyStudent], object]) -> bool:
    torch.manual_seed(0)
    step(other.train())
    return True
