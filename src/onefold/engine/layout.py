"""The memory format of images and weights in training: channels-last ("innermost"), if a training step works with it.

Convolutions and norms are faster in channels-last, on GPUs and CPUs. But any code in a step may depend on the memory
format: `x.view(len(x), -1)` after a convolution is an error in channels-last. So a step is tried first.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from onefold.engine.alike import close, fill_zeros
from onefold.engine.device import seeded
from onefold.engine.distributed.spread import SpreadTeachers
from onefold.engine.distributed.world import ALONE, World
from onefold.ensemble import Teachers
from onefold.ensemble.student import logits_of
from onefold.fast.tf32 import tf32
from onefold.methods import AnyStudent

OUTERMOST, INNERMOST = torch.contiguous_format, torch.channels_last
SLOWER = (nn.InstanceNorm2d, nn.LocalResponseNorm)  # layers that are slower in channels-last on a CPU

Strides = dict[str, tuple[int, ...]]  # of the convolution weights, by name
TakeStep = Callable[[Any, torch.memory_format], object]  # runs a training step with a copy of the student


def innermost(x: Tensor) -> Tensor:
    """Images in channels-last; anything that is not 4-dimensional is returned unchanged."""
    return x.contiguous(memory_format=INNERMOST) if x.dim() == 4 else x


def convolutional(module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """The 4-dimensional parameters by name. Those of a lazy layer that was never run have no shape yet."""
    for name, parameter in module.named_parameters():
        if not isinstance(parameter, UninitializedParameter) and parameter.dim() == 4:
            yield name, parameter


def lay_out(module: nn.Module) -> None:
    """Converts convolution weights, in place, to channels-last."""
    for _, parameter in convolutional(module):
        parameter.data = parameter.data.contiguous(memory_format=INNERMOST)


def strides_of(module: nn.Module) -> Strides:
    """The strides of the convolution weights, as a copy of the network has them."""
    return {name: torch.empty_like(p, device="meta").stride() for name, p in convolutional(module)}


def restore(module: nn.Module, strides: Strides) -> None:
    """Gives convolution weights their recorded strides back, in place; without a record they become contiguous."""
    for name, p in convolutional(module):
        wanted = strides.get(name, torch.empty(p.shape, device="meta").stride())
        if p.stride() != wanted:
            p.data = torch.empty_strided(p.shape, wanted, dtype=p.dtype, device=p.device).copy_(p.data)


def layout_for(
    student: AnyStudent,
    teachers: Teachers | SpreadTeachers | None,
    x: Tensor,
    step: TakeStep,
    say: Callable[[str], None],
    world: World = ALONE,
) -> torch.memory_format:
    """Channels-last if, in all processes, the student and all teachers give the same outputs with it and a whole
    training step runs; otherwise contiguous.

    `step` runs a step with a copy of the student. With several processes only the student's own forward and backward
    are tried: a step contains collectives, so that if it failed in one process the others would hang.
    """
    own = teachers.own if isinstance(teachers, SpreadTeachers) else teachers
    networks = [] if own is None else list(own.networks)[: 1 if own.alike else None]
    convolving = any(True for network in (student, *networks) for _ in convolutional(network))
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
            reason = ""  # the step fails in both formats, and training itself will say why
    let_go(other)
    found = world.collected((refused, reason))
    for told in [told for _, told in found if told][:1]:
        say(told)
    return OUTERMOST if any(refused for refused, _ in found) else INNERMOST


def refusal(who: str, ask: Callable[[], bool], device: torch.device) -> str:
    """Why `who` cannot use channels-last; empty if it can. Random number generators are left as they were."""
    try:
        with seeded(device, 0), tf32(False):
            reason = "" if ask() else "its answers differ"
    except Exception as error:  # code that depends on the memory format may raise anything
        reason = str(error).strip().split("\n")[0] or type(error).__name__
    return f"{who} cannot have channels innermost in memory, which would be faster: {reason}" if reason else ""


@torch.no_grad()
def of_student(other: AnyStudent, x: Tensor) -> bool:
    """Whether a copy of the student gives the same outputs in channels-last (or random ones, which cannot be compared).
    The copy's weights stay in channels-last."""
    fill_zeros(other)
    ask = partial(drawn, other.at_rest)
    expected, again = ask(x), ask(x, seed=1)
    lay_out(other)
    return close(ask(innermost(x)), expected, other) or not close(again, expected, other)


@torch.no_grad()
def of_teacher(network: nn.Module, x: Tensor) -> bool:
    """Whether a teacher gives the same outputs (or random ones) for channels-last inputs. Also computes its input
    gradient, which perturbations need: if that fails, it raises."""
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
    """Outputs from a given seed. A network that draws random feature maps fills them in memory order, so its outputs
    differ between memory formats."""
    torch.manual_seed(seed)
    return network(x).float()


def of_step(other: AnyStudent, take: TakeStep, layout: torch.memory_format) -> bool:
    lay_out(other) if layout is INNERMOST else restore(other, {})
    other.zero_grad()  # gradients of an earlier trial have that trial's memory format
    take(other.train(), layout)
    return True


def differentiate(x: Tensor, student: AnyStudent, layout: torch.memory_format) -> None:
    student(innermost(x) if layout is INNERMOST else x).square().mean().backward()


def let_go(module: nn.Module) -> None:
    """Frees a copy's memory now: student and twin form a reference cycle, which Python would collect only later."""
    for parameter in module.parameters():
        parameter.grad, parameter.data = None, parameter.data.new_empty(0)
