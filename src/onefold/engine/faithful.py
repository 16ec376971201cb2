"""Whether a captured step computes what the same step computes kernel by kernel.

A kernel that a graph runs too early, or whose memory another one writes to, raises no error: the network only learns
less. So the first replay of each graph is compared with the step it was captured from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter
from torch.optim import Optimizer

from onefold.engine.alike import STEADY, flat

NUDGE = 2**-9  # relative change of weights that moves gradients about as much as rounding to bf16
# Smallest allowed cosine, and ratio of lengths: the kernels are the same, only orders of summation may differ.
LEAST = 0.8
MARGIN = 10  # but a replay may be this many times as far from a cosine of one as the nudge alone brings it

# What a step leaves: each gradient and each change of a weight, a statistic or the optimizer's state, by what it is;
# on the host and in bf16, which is enough to compare them.
Trace = dict[str, Tensor]
Copies = list[tuple[Tensor, Tensor]]  # tensors that a step changes, each with a copy from before


class Expected(NamedTuple):
    """What the step leaves kernel by kernel, and what with nudged weights, which tells where rounding decides."""

    exact: Trace
    nudged: Trace


class Likeness(NamedTuple):
    """How one entry of a replay compares with that of the step kernel by kernel."""

    name: str
    cosine: float
    ratio: float  # of the lengths
    steady: bool  # whether the entry is more than rounding, or no number
    least: float  # the smallest cosine and ratio to accept

    @property
    def same(self) -> bool:
        return not self.steady or (self.cosine > self.least and self.least < self.ratio < 1 / self.least)


def trained(net: nn.Module, optimizer: Optimizer) -> dict[str, nn.Parameter]:
    """The parameters of a network that the optimizer updates, by name."""
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    named = net.named_parameters()
    return {name: p for name, p in named if id(p) in held and not isinstance(p, UninitializedParameter)}


@torch.no_grad()
def traced(modules: Sequence[nn.Module], optimizer: Optimizer, before: Copies) -> Trace:
    """What a step has just left: in the student, which is the first module, its moving average and the optimizer."""
    names: dict[int, str] = {}
    for module in modules:
        whose = "" if module is modules[0] else "the average of "
        names |= {id(t): whose + name for name, t in (*module.named_parameters(), *module.named_buffers())}
    trace = {}
    for name, p in trained(modules[0], optimizer).items():
        if p.grad is not None:
            trace[f"the gradient of {name}"] = kept(p.grad)
        states = {what: t for what, t in optimizer.state.get(p, {}).items() if isinstance(t, Tensor)}
        names |= {id(t): f"{what} of {name}" for what, t in states.items()}
    for now, was in before:
        if id(now) in names and (now.is_floating_point() or now.is_complex()):
            trace[f"the update of {names[id(now)]}"] = kept(now - was)
    return trace


def kept(t: Tensor) -> Tensor:
    return flat(t.detach()).to(torch.bfloat16).cpu()


@torch.no_grad()
def nudge(parameters: Mapping[str, nn.Parameter]) -> None:
    """Changes every weight a little, the same way in every process."""
    for p in parameters.values():
        draws = torch.Generator(p.device).manual_seed(0)
        p.mul_(1 + NUDGE * torch.randn(p.shape, generator=draws, device=p.device))


def check_repeatable(expected: Expected) -> None:
    """Refuses a step that takes other paths from run to run: a graph would take the same one for ever."""
    changing = sorted(expected.exact.keys() ^ expected.nudged.keys())
    if changing:
        raise ValueError(f"{changing[0]} is there in one run and not in the next")


def check_replay(found: Trace, expected: Expected, device: torch.device) -> None:
    """Raises ValueError if a replay leaves something else than the step does kernel by kernel."""
    if missing := sorted(found.keys() ^ expected.exact.keys()):
        raise ValueError(f"{missing[0]} is only there in one of the two")
    lost = [each.name for each in compared(found, expected, device) if not each.same]
    if lost:
        raise ValueError(f"{lost[0]} differs" + (f", and {len(lost) - 1} more" if len(lost) > 1 else ""))


@torch.no_grad()
def compared(found: Trace, expected: Expected, device: torch.device) -> list[Likeness]:
    """Every entry that is not zero, compared on a device."""
    exact, nudged = expected
    sums = []
    for name in exact:
        f, e, n = (trace[name].to(device, torch.float64) for trace in (found, exact, nudged))
        sums.append(torch.stack([f @ e, f @ f, e @ e, n @ e, n @ n]))
    rows = torch.stack(sums).tolist() if sums else []
    return [likeness(name, *row) for name, row in zip(exact, rows, strict=True) if row[2] > 0]


def likeness(name: str, fe: float, ff: float, ee: float, ne: float, nn: float) -> Likeness:
    """From the inner products of what was found, what is exact, and what comes of nudged weights."""
    length, found, nudged = (math.sqrt(value) for value in (ee, ff, nn))
    alike = ne / (length * nudged) if nudged > 0 else 0.0
    # A single number has a cosine of one or minus one, however much of it is rounding: look at its length, too.
    steady = alike >= STEADY and LEAST < nudged / length < 1 / LEAST
    steady = math.isfinite(ee) and (steady or not math.isfinite(ff))
    least = min(LEAST, 1 - MARGIN * (1 - alike))
    return Likeness(name, fe / (length * found) if found > 0 else 0.0, found / length, steady, least)
