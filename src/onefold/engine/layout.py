"""The memory format of images and weights in training: channels-last ("innermost"), if a training step works with it.

Convolutions and norms are faster in channels-last, on GPUs and CPUs. But any code in a step may depend on the memory
format: `x.view(len(x), -1)` after a convolution is an error in channels-last. So a step is tried first.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from onefold.engine.alike import Gradients, close, empty, fill_zeros, finite, flat, gradient, same_gradients
from onefold.engine.distributed.spread import SpreadTeachers
from onefold.engine.distributed.world import ALONE, World
from onefold.engine.trial import NO_ROOM, REFUSED, FailsAnyway, difference, failure, first_refusal
from onefold.ensemble import Teachers
from onefold.ensemble.copied import shares
from onefold.ensemble.student import logits_of
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
    *,
    few: int | None = None,
    followed: bool = True,
) -> torch.memory_format:
    """Channels-last if, in all processes, the student's outputs and training gradients and all teachers' outputs are
    the same with it, and a whole training step runs; otherwise contiguous.

    `step` runs a step with a copy of the student. With several processes it must not contain collectives: if it failed
    in one process, the others would hang. Gradients are computed with the first `few` examples. The teachers' gradients
    with respect to their inputs are compared, too, if they are `followed` by a perturbation.
    """
    own = teachers.own if isinstance(teachers, SpreadTeachers) else teachers
    networks = [] if own is None else list(own.networks)[: 1 if own.alike else None]
    convolving = any(True for network in (student, *networks) for _ in convolutional(network))
    if not any(world.collected(convolving)):
        return OUTERMOST
    if x.device.type == "cpu" and any(isinstance(module, SLOWER) for module in student.modules()):
        return OUTERMOST
    other = copy.deepcopy(student)
    if shares(other, student):
        found = True, REFUSED.format("the student", "a copy of it shares weights with it, so it cannot be tried")
    else:
        strides = strides_of(other)
        trials: list[tuple[str, Callable[[], str]]] = [("the student", partial(of_student, other, strides, x, few))]
        trials += [("the teachers", partial(of_teacher, network, x, few, followed)) for network in networks]
        found = first_refusal([*trials, ("a step", partial(of_step, other, strides, step, x.device))])
        let_go(other)
        if x.is_cuda and found == (True, NO_ROOM):
            torch.cuda.empty_cache()
    every = world.collected(found)
    for told in [told for _, told in every if told][:1]:
        say(told)
    return OUTERMOST if any(refused for refused, _ in every) else INNERMOST


def of_student(other: AnyStudent, strides: Strides, x: Tensor, few: int | None) -> str:
    """What is wrong with a student's outputs or training gradients in channels-last; empty if nothing is."""
    filled = fill_zeros(other)

    def ask(compute: Callable[[Tensor], Gradients], x: Tensor, layout: torch.memory_format) -> Gradients:
        put(other, layout, strides)
        found = compute(x)
        if filled and not finite(found):
            empty(filled)
            found = compute(x)
        return found

    rest = partial(ask, partial(outputs, other.at_rest))
    train = partial(ask, lambda x: gradient(other, x, "float32"))
    reason = difference(rest, x, partial(same_outputs, other))
    reason = reason or difference(train, x[:few], partial(same_gradients, net=other), "gradients")
    empty(filled)
    return reason


def of_teacher(network: nn.Module, x: Tensor, few: int | None, followed: bool) -> str:
    """What is wrong with a teacher's outputs, or its input gradient if it is followed, for channels-last inputs; its
    weights stay as they are."""
    ask = partial(logits_of, network)
    reason = difference(lambda x, _: outputs(ask, x), x, partial(same_outputs, network))
    if not reason and followed and x.is_floating_point():
        with contextlib.suppress(FailsAnyway):  # without a gradient in either format, it is not the format's fault
            return difference(lambda x, _: slope(ask, x), x[:few], partial(same_gradients, net=network), "gradients")
    return reason


def of_step(other: AnyStudent, strides: Strides, step: TakeStep, device: torch.device) -> str:
    """Why a step fails in channels-last; empty if it runs."""

    def take(layout: torch.memory_format) -> None:
        put(other, layout, strides)
        other.zero_grad()  # gradients of an earlier trial have that trial's memory format
        step(other.train(), layout)

    return failure(take, device)


def put(other: AnyStudent, layout: torch.memory_format, strides: Strides) -> None:
    lay_out(other) if layout is INNERMOST else restore(other, strides)


@torch.no_grad()
def outputs(network: Callable[[Tensor], Tensor], x: Tensor) -> Gradients:
    return {"": network(x).float()}


def same_outputs(net: nn.Module, found: Gradients, expected: Gradients) -> bool:
    return close(found[""], expected[""], net)


def slope(network: Callable[[Tensor], Tensor], x: Tensor) -> Gradients:
    """The gradient of the mean square of the outputs with respect to the inputs."""
    z = x.detach().clone().requires_grad_()
    (g,) = torch.autograd.grad(network(z).float().square().mean(), z, materialize_grads=True)
    return {"": flat(g)}


def differentiate(x: Tensor, student: AnyStudent, layout: torch.memory_format) -> None:
    student(innermost(x) if layout is INNERMOST else x).square().mean().backward()


def let_go(module: nn.Module) -> None:
    """Frees a copy's memory now: student and twin form a reference cycle, which Python would collect only later."""
    for parameter in module.parameters():
        parameter.grad = None
        if not isinstance(parameter, UninitializedParameter):
            parameter.data = parameter.data.new_empty(0)
