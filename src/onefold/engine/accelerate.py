"""Speeds up students and teachers on a GPU in stages, each applied only if outputs and gradients stay the same."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from onefold.engine.alike import (
    ALIKE,
    EQUAL,
    STEADY,
    close,
    empty,
    fill_zeros,
    finite,
    gradient,
    likeness,
    lost_gradients,
)
from onefold.engine.blame import told
from onefold.engine.distributed.batch_norm import leave_to_rewriting, share_statistics
from onefold.engine.distributed.world import ALONE, World
from onefold.engine.layout import INNERMOST, innermost, lay_out, let_go, restore, strides_of
from onefold.ensemble import Teachers
from onefold.ensemble.copied import shares
from onefold.fast.ahead import compile_ahead
from onefold.fast.fold_norms import fold_pairs, foldable
from onefold.fast.network import make_fast, make_plain
from onefold.fast.tf32 import tf32
from onefold.methods import AnyStudent

SHARED = "copies to try it with share weights with the original"
APART = 0.1  # largest allowed difference of outputs, relative to the largest output: what bf16 rounding can cause

T = TypeVar("T")


def fast_teachers(
    teachers: Teachers,
    x: Tensor,
    precision: str,
    say: Callable[[str], None],
    layout: torch.memory_format = INNERMOST,
) -> Teachers:
    """A faster copy: BatchNorm folded into convolutions, weights rounded to bf16 once instead of in every step, and
    networks rewritten into few kernels."""
    x = innermost(x) if layout is INNERMOST else x  # like a step's inputs, so that networks are traced only once
    given, teachers = teachers, copy.deepcopy(teachers)
    if shares(teachers, given):
        say(f"the teachers cannot be rewritten and run layer by layer: {SHARED}")
        return given
    expected = answers(given, x)
    fold_all(teachers, given, x, say)
    if layout is INNERMOST:
        lay_out_unless_seen(teachers, x)
    if precision == "bf16":
        for module in teachers.modules():
            if isinstance(module, (nn.Linear, nn.modules.conv._ConvNd)) and module.weight.dtype == torch.float32:
                module.weight.data = module.weight.data.to(torch.bfloat16)
    teachers.restack()
    for network in teachers.networks:
        make_fast(network)
    asked = partial(for_the_first_time, partial(answers, teachers, x, precision), x)
    plain_unless_alike(asked, expected, teachers.networks, "the teachers", say)
    return teachers


def lay_out_unless_seen(teachers: Teachers, x: Tensor) -> None:
    """Converts the teachers' weights to channels-last, unless outputs change or fail: activations may lose the format
    on the way through a network, and channels-last weights bring it back."""
    before = strides_of(teachers)
    with tf32(False):
        expected = answers(teachers, x)
        lay_out(teachers)
        try:
            same = close(answers(teachers, x), expected, teachers)
        except Exception:  # code that depends on the memory format may raise anything
            same = False
    if not same:
        restore(teachers, before)


def fold_all(teachers: Teachers, given: Teachers, x: Tensor, say: Callable[[str], None]) -> None:
    """Folds each teacher's BatchNorm into its convolutions if that changes nothing but rounding. Teachers of the same
    architecture are folded all or none, because picking a member runs one network with another's weights."""
    kinds: dict[tuple[tuple[str, type[nn.Module]], ...], list[int]] = {}
    for m, original in enumerate(given.networks):
        kinds.setdefault(tuple((name, type(module)) for name, module in original.named_modules()), []).append(m)
    for alike in kinds.values():
        if not any(isinstance(module, nn.BatchNorm2d) for module in given.networks[alike[0]].modules()):
            continue
        try:
            pairs = foldable(teachers.networks[alike[0]], x)  # traced once for all, which takes seconds
            for m in alike:
                fold_pairs(teachers.networks[m], pairs)
            with tf32(False):
                same = all(
                    close(answers(folded, x), answers(original, x), original)
                    for folded, original in ((teachers.networks[m], given.networks[m]) for m in alike)
                )
            reason = "" if same else "their outputs differ"
        except Exception as error:  # a network that torch's compiler cannot trace, or that needs the removed layer
            reason = told(error)
        if reason:
            copied: dict[int, Any] = {}  # one deepcopy memo: alike teachers share storage, which is then copied once
            for m in alike:
                teachers.networks[m] = copy.deepcopy(given.networks[m], copied)
            say(f"the teachers' BatchNorm cannot be folded into their convolutions and is kept: {reason}")


def fast_student(
    student: AnyStudent, x: Tensor, precision: str, say: Callable[[str], None], world: World = ALONE
) -> None:
    """Makes the student's networks, in training and evaluation mode, run rewritten graphs, in all processes or none."""
    expected = answers(student.at_rest, x)
    before = copy.deepcopy(student)
    apart = not shares(before, student)
    nets = [student.net, student.at_rest.net]
    common = leave_to_rewriting(student.net)  # whether there are layers with statistics over all processes
    make_fast(student.net, world if common else None)
    make_fast(student.at_rest.net)

    def ask() -> Tensor:
        if not apart:  # noise in place of zeros, or a step of statistics, would be the student's
            raise ValueError(SHARED)
        after = copy.deepcopy(student)
        if common:  # for this check they use no collectives: if one process failed, the others would hang
            share_statistics(after.net, ALONE)
            leave_to_rewriting(after.net)
        make_fast(after.net, ALONE if common else None)
        try:
            check_gradients(before, after, x, precision)
        finally:
            let_go(before)
            let_go(after)
        return for_the_first_time(partial(answers, student.at_rest, x, precision), x)

    plain_unless_alike(ask, expected, nets, "the student", say, world)


def check_gradients(before: AnyStudent, after: AnyStudent, x: Tensor, precision: str) -> None:
    """Refuses a rewritten student whose training gradients differ: all together, or for a single parameter, whose error
    would be outweighed by the others.

    The comparison is in bf16 for networks whose gradient survives that rounding. In others, such as a deep ResNet with
    its initial weights, even two ways of rounding give gradients with little in common; these are compared in float32.
    """
    filled = fill_zeros(before, after)
    with tf32(False):
        exact = rounded = gradient(before, x, "float32")
        if not finite(exact):
            empty(filled)
            exact = rounded = gradient(before, x, "float32")
        if not finite(exact):
            raise ValueError("its gradients are not finite and cannot be compared")
        if precision == "bf16":
            rounded = gradient(before, x, precision)
            if likeness(rounded, exact) < STEADY:
                precision, rounded = "float32", exact
        found = for_the_first_time(partial(gradient, after, x, precision), x)
    alike = likeness(found, exact)
    if not alike > (ALIKE if precision == "bf16" else EQUAL):
        raise ValueError(f"its gradients differ too much (similarity {alike:.3f})")
    if lost := lost_gradients(found, exact, rounded):
        raise ValueError(f"the gradient of {lost[0]} differs")


@torch.no_grad()
def answers(ensemble: Callable[[Tensor], Tensor], x: Tensor, precision: str = "float32") -> Tensor:
    with torch.autocast(x.device.type, torch.bfloat16, enabled=precision == "bf16"):
        return ensemble(x).float()


def for_the_first_time(compute: Callable[[], T], x: Tensor) -> T:
    """Runs rewritten networks whose kernels may not be compiled yet: on a GPU, compiles them in parallel first."""
    if x.is_cuda:
        compile_ahead(compute)
    return compute()


def plain_unless_alike(
    ask: Callable[[], Tensor],
    expected: Tensor,
    nets: nn.ModuleList | list[nn.Module],
    who: str,
    say: Callable[[str], None],
    world: World = ALONE,
) -> None:
    """Restores the original networks if, in any process, the rewritten ones fail or give different outputs."""
    try:
        worst = float((ask() - expected).abs().max() / expected.abs().max().clamp(min=1e-6))
        reason = "" if worst < APART else f"its outputs differ by {worst:.1%}"
    except Exception as error:  # a network may do anything that torch's compiler cannot trace
        reason = told(error)
    reasons = [found for found in world.collected(reason) if found]
    if reasons:
        for net in nets:
            make_plain(net)
            leave_to_rewriting(net, False)
        say(f"{who} cannot be rewritten and runs layer by layer: {reasons[0]}")
