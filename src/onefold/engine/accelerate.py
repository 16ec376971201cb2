"""Students and teachers made fast for a GPU, one stage after the other, each only where it changes nothing."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from onefold.engine.alike import STEADY, close, fill_zeros, gradient, likeness, lost_gradients
from onefold.engine.distributed.batch_norm import leave_to_rewriting, share_statistics
from onefold.engine.distributed.world import ALONE, World
from onefold.engine.layout import INNERMOST, innermost, lay_out, layout_of
from onefold.ensemble import Teachers
from onefold.fast.ahead import compile_ahead
from onefold.fast.fold_norms import fold_pairs, foldable
from onefold.fast.network import make_fast, make_plain
from onefold.fast.tf32 import tf32
from onefold.methods import AnyStudent

APART = 0.1  # how far answers may be, as a part of the largest: that is what bf16 makes of them
# Cosines between gradients on a few examples, at least:
ALIKE = 0.9  # of the plain and the rewritten network's, rounded in two ways
EQUAL = 0.99  # of the same in float32, where only the order of sums differs

T = TypeVar("T")


def fast_teachers(
    teachers: Teachers,
    x: Tensor,
    precision: str,
    say: Callable[[str], None],
    layout: torch.memory_format = INNERMOST,
) -> Teachers:
    """A copy whose weights are rounded once and not in every step."""
    x = innermost(x) if layout is INNERMOST else x  # as a step's: it is read once for both
    expected = answers(teachers, x)
    given, teachers = teachers, copy.deepcopy(teachers)
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
    """Images may lose their layout on the way through a network, and its weights bring it in again."""
    before = layout_of(teachers)
    with tf32(False):
        expected = answers(teachers, x)
        lay_out(teachers)
        try:
            same = close(answers(teachers, x), expected, teachers)
        except Exception:  # whatever a network does that looks at its memory
            same = False
    if not same:
        lay_out(teachers, before)


def fold_all(teachers: Teachers, given: Teachers, x: Tensor, say: Callable[[str], None]) -> None:
    """Each teacher's BatchNorm into its convolutions, where that changes nothing but rounding: in all that are alike
    or in none, for they answer together."""
    kinds: dict[tuple[tuple[str, type[nn.Module]], ...], list[int]] = {}
    for m, original in enumerate(given.networks):
        kinds.setdefault(tuple((name, type(module)) for name, module in original.named_modules()), []).append(m)
    for alike in kinds.values():
        if not any(isinstance(module, nn.BatchNorm2d) for module in given.networks[alike[0]].modules()):
            continue
        try:
            pairs = foldable(teachers.networks[alike[0]], x)  # read once, which takes seconds
            for m in alike:
                fold_pairs(teachers.networks[m], pairs)
            with tf32(False):
                same = all(
                    close(answers(folded, x), answers(original, x), original)
                    for folded, original in ((teachers.networks[m], given.networks[m]) for m in alike)
                )
            reason = "" if same else "their answers differ"
        except Exception as error:  # a network that the compiler cannot read, or that misses the layer
            reason = told(error)
        if reason:
            copied: dict[int, Any] = {}  # their weights lie together, and are copied once
            for m in alike:
                teachers.networks[m] = copy.deepcopy(given.networks[m], copied)
            say(f"the teachers' BatchNorm cannot be folded into their convolutions and stays: {reason}")


def told(error: Exception) -> str:
    """An error in a line; torch's compiler wraps what the rewriting raises."""
    cause = getattr(error, "inner_exception", error)
    return str(cause).strip().split("\n")[0] or type(cause).__name__


def fast_student(
    student: AnyStudent, x: Tensor, precision: str, say: Callable[[str], None], world: World = ALONE
) -> None:
    """The student's networks, in training and at rest, run their rewritten graphs, in all processes or none."""
    expected = answers(student.at_rest, x)
    before = copy.deepcopy(student)
    nets = [student.net, student.at_rest.net]
    common = leave_to_rewriting(student.net)  # whether there are layers that ask the other processes
    make_fast(student.net, world if common else None)
    make_fast(student.at_rest.net)

    def ask() -> Tensor:
        after = copy.deepcopy(student)
        if common:  # here they ask nobody: a process that fails would keep the others waiting
            share_statistics(after.net, ALONE)
            leave_to_rewriting(after.net)
        make_fast(after.net, ALONE if common else None)
        check_gradients(before, after, x, precision)
        return for_the_first_time(partial(answers, student.at_rest, x, precision), x)

    plain_unless_alike(ask, expected, nets, "the student", say, world)


def check_gradients(before: AnyStudent, after: AnyStudent, x: Tensor, precision: str) -> None:
    """Refuses a rewritten student whose gradients in training point elsewhere than they did, all together or a
    parameter's own, which the others outweigh.

    With bf16 that is seen in networks whose gradient survives the rounding. In others, such as a deep ResNet with its
    first weights, even two ways of rounding have little in common; these are compared in float32.
    """
    fill_zeros(before, after)
    with tf32(False):
        exact = rounded = gradient(before, x, "float32")
        if precision == "bf16":
            rounded = gradient(before, x, precision)
            if likeness(rounded, exact) < STEADY:
                precision, rounded = "float32", exact
        found = for_the_first_time(partial(gradient, after, x, precision), x)
    alike = likeness(found, exact)
    if not alike > (ALIKE if precision == "bf16" else EQUAL):
        raise ValueError(f"its gradients are only {alike:.3f} alike")
    if lost := lost_gradients(found, exact, rounded):
        raise ValueError(f"the gradient of {lost[0]} is another one")


@torch.no_grad()
def answers(ensemble: Callable[[Tensor], Tensor], x: Tensor, precision: str = "float32") -> Tensor:
    with torch.autocast(x.device.type, torch.bfloat16, enabled=precision == "bf16"):
        return ensemble(x).float()


def for_the_first_time(compute: Callable[[], T], x: Tensor) -> T:
    """What rewritten networks compute, whose kernels may have to be compiled."""
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
    """Leaves the networks as they were where the rewritten ones fail or answer something else, in any process."""
    try:
        worst = float((ask() - expected).abs().max() / expected.abs().max().clamp(min=1e-6))
        reason = "" if worst < APART else f"its answers differ by {worst:.1%}"
    except Exception as error:  # whatever a network does that torch's compiler cannot read
        reason = told(error)
    reasons = [found for found in world.collected(reason) if found]
    if reasons:
        for net in nets:
            make_plain(net)
            leave_to_rewriting(net, False)
        say(f"{who} cannot be rewritten and runs layer by layer: {reasons[0]}")
