"""How images and weights lie in memory during a training: channels innermost, where a step takes that.

Convolutions and norms are faster so, on a GPU and on a CPU. But whatever has a part in a step may look at how its
tensors lie: `x.view(len(x), -1)` behind a convolution is an error where channels are innermost. So a step is tried.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from onefold.engine.alike import close, fill_zeros
from onefold.engine.device import seeded
from onefold.engine.distributed.spread import SpreadTeachers
from onefold.engine.distributed.world import ALONE, World
from onefold.ensemble import Teachers
from onefold.ensemble.student import logits_of
from onefold.fast.tf32 import tf32
from onefold.methods import AnyStudent

OUTERMOST, INNERMOST = torch.contiguous_format, torch.channels_last
SLOWER = (nn.InstanceNorm2d, nn.LocalResponseNorm)  # with channels innermost, on a CPU

TakeStep = Callable[[Any, torch.memory_format], object]  # of a student


def innermost(x: Tensor) -> Tensor:
    """Images with their channels innermost; what is no image stays as it is."""
    return x.contiguous(memory_format=INNERMOST) if x.dim() == 4 else x


def lay_out(module: nn.Module, layout: torch.memory_format = INNERMOST) -> None:
    """Weights of convolutions with their channels innermost, or outermost again."""
    for parameter in module.parameters():
        if parameter.dim() == 4:
            parameter.data = parameter.data.contiguous(memory_format=layout)


def layout_of(module: nn.Module) -> torch.memory_format:
    """How somebody gave their network."""
    images = [p for p in module.parameters() if p.dim() == 4 and not p.is_contiguous()]
    return INNERMOST if any(p.is_contiguous(memory_format=INNERMOST) for p in images) else OUTERMOST


def layout_for(
    student: AnyStudent,
    teachers: Teachers | SpreadTeachers | None,
    x: Tensor,
    step: TakeStep,
    say: Callable[[str], None],
    world: World = ALONE,
) -> torch.memory_format:
    """Innermost where the student and all teachers answer the same so, and a whole step goes through; in all processes.

    `step` takes one with a copy of the student. Several processes try the student alone: a step has collectives, and
    where one of them fails the others would wait.
    """
    own = teachers.own if isinstance(teachers, SpreadTeachers) else teachers
    networks = [] if own is None else list(own.networks)[: 1 if own.alike else None]
    convolving = any(p.dim() == 4 for network in (student, *networks) for p in network.parameters())
    if not any(world.collected(convolving)):
        return OUTERMOST
    if x.device.type == "cpu" and any(isinstance(module, SLOWER) for module in student.modules()):
        return OUTERMOST
    other = copy.deepcopy(student)
    take: TakeStep = step if world.size == 1 else partial(differentiate, x)
    reason = refusal("the student", partial(of_student, other, x), x.device)
    for network in networks:
        reason = reason or refusal("the teachers", partial(of_teacher, network, x), x.device)
    refused = bool(reason)
    if not refused:
        reason = refusal("a step", partial(of_step, other, take, INNERMOST), x.device)
        refused = bool(reason)
        if refused and refusal("a step", partial(of_step, other, take, OUTERMOST), x.device):
            reason = ""  # it fails either way, and the training will say why
    let_go(other)
    found = world.collected((refused, reason))
    for told in [told for _, told in found if told][:1]:
        say(told)
    return OUTERMOST if any(refused for refused, _ in found) else INNERMOST


def refusal(who: str, ask: Callable[[], bool], device: torch.device) -> str:
    """Why somebody cannot have channels innermost; empty where they can. Nobody else sees that numbers were drawn."""
    try:
        with seeded(device, 0), tf32(False):
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
    """Whether a teacher answers the same; and has a gradient, as perturbations ask for."""
    ask = partial(drawn, partial(logits_of, network))
    expected = ask(x)
    if x.is_floating_point():
        with torch.enable_grad():
            moved = innermost(x).detach().clone().requires_grad_()
            answer = ask(moved)
            if answer.requires_grad:
                torch.autograd.grad(answer.square().mean(), moved, allow_unused=True)
    return close(ask(innermost(x)), expected, network) or not close(ask(x, seed=1), expected, network)


def drawn(network: Callable[[Tensor], Tensor], x: Tensor, seed: int = 0) -> Tensor:
    """Answers of a network that may draw numbers. On maps it draws in the order of the memory: such answers differ."""
    torch.manual_seed(seed)
    return network(x).float()


def of_step(other: AnyStudent, take: TakeStep, layout: torch.memory_format) -> bool:
    lay_out(other, layout)
    other.zero_grad()  # of a step before, which lie as that one had them
    take(other.train(), layout)
    return True


def differentiate(x: Tensor, student: AnyStudent, layout: torch.memory_format) -> None:
    student(innermost(x) if layout is INNERMOST else x).square().mean().backward()


def let_go(module: nn.Module) -> None:
    """Gives a copy's memory back: a student and its twin know each other, so that Python alone would take its time."""
    for parameter in module.parameters():
        parameter.grad, parameter.data = None, parameter.data.new_empty(0)
