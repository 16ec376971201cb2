"""Runs a network on an example to find each layer's batch dimension, and verifies a conversion."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from onefold.ensemble import fast_path
from onefold.ensemble.fold import folded
from onefold.ensemble.probe import (
    Output,
    agree,
    comparable,
    deviation,
    examples,
    input_shapes,
    member_of,
    other_values,
    outputs,
    same,
    shuffled,
    tiled,
    usual_batch_dim,
)
from onefold.ensemble.rank_one import RankOne, named_factors
from onefold.fast.tf32 import tf32

# How much members may differ from the original network when all factors are one.
SAME = {torch.float32: 1e-5, torch.float64: 1e-10}

DEPENDS = (
    "expected the answer for one example not to depend on the others in the batch, "
    "got members that differ from their subnetworks"
)

Answer = TypeVar("Answer")


class Disagreement(NamedTuple):
    """A layer that mixes members; the name is empty if only the network's output shows it."""

    layer: str
    reason: str


def possible(x: Tensor) -> bool:
    """Whether values can be inspected now: not while compiling, capturing a CUDA graph, or under functorch."""
    if torch.compiler.is_compiling() or type(x) not in (Tensor, nn.Parameter) or x.is_meta or x.shape[0] == 0:
        return False
    if torch._C._functorch.is_functorch_wrapped_tensor(x):
        return False
    return x.device.type != "cuda" or not torch.cuda.is_current_stream_capturing()


def independent(net: nn.Module, example: Tensor) -> None:
    """Refuses a network whose output for one example depends on the others in the batch."""
    x = examples(example, 2)

    def compare(dtype: torch.dtype) -> bool:
        probe = comparable(net, dtype)
        (alone,), (again,) = outputs(probe, {}, x), outputs(probe, {}, x, seed=1)
        (both,) = outputs(probe, {}, tiled(x, 2))
        return not same(alone, again) or agree(member_of(both, 2, 1), alone.values)

    if not in_best_precision(compare):
        raise ValueError(f"{type(net).__name__}: {DEPENDS}")


def observe(net: nn.Module, example: Tensor) -> tuple[dict[str, str], dict[str, int]]:
    """Runs the network on four and on six examples: the dimension that grows is a layer's batch dimension.

    Returns, by layer name, reasons to leave layers shared, and the batch dimensions of Linear layers where not 0.
    """
    probe = comparable(net)
    four, six = (input_shapes(probe, examples(example, count)) for count in (4, 6))
    # Change the values of weights and inputs: this exposes layers whose calls depend on them, such as routed experts.
    others = [input_shapes(shuffled(probe, seed), other_values(examples(example, 4), seed)) for seed in range(3)]
    found: dict[str, str] = {}
    dims: dict[str, int] = {}
    for name, calls in four.items():
        layer = probe.get_submodule(name)
        grown = [
            tuple(d for d, (a, b) in enumerate(zip(s, t, strict=False)) if 3 * a == 2 * b > 0)
            for s, t in zip(calls, six[name], strict=False)
        ]
        if not calls:
            found[name] = "it was never called: its weight is read by other code, or not used"
        elif any(seen[name] != calls for seen in others):
            found[name] = "which examples it is called on depends on their values"
        elif len(calls) != len(six[name]) or len(set(grown)) != 1 or len(grown[0]) > 1:
            found[name] = "where its batch lies cannot be told"
        elif not grown[0]:
            found[name] = "it is called on something that does not depend on the batch"
        elif isinstance(layer, nn.Linear) and grown[0][0] < len(calls[0]) - 1:
            dims[name] = grown[0][0]
        elif isinstance(layer, nn.Linear) or grown[0][0] != usual_batch_dim(layer):
            found[name] = f"its batch lies in dimension {grown[0][0]}"
    return found, dims


def first_disagreement(net: nn.Module, example: Tensor) -> Disagreement | None:
    """The first layer of a converted network, in call order, at which a member differs from its subnetwork.

    Compares two members with random factors at every converted layer, because an error may be multiplied by zero
    before it reaches the logits. The other parameters get noise, since some branches are initialized to zero.
    """
    x = examples(example, 2)

    def compare(dtype: torch.dtype) -> Disagreement | None:
        for noise in (0.1, 0.0):
            probe = comparable(net, dtype)
            randomise(probe, members=2, noise=noise)
            members = [folded(probe, [float(i == m) for i in range(2)]) for m in range(2)]
            for member in members:
                fast_path.turn_off(member)
            layers = {m.layer_name: m.batch_dim for m in probe.modules() if isinstance(m, RankOne)}
            together = outputs(probe, layers, tiled(x, 2))
            alone = [outputs(member, layers, x) for member in members]
            again = outputs(members[0], layers, x, seed=1)
            if all(output.values.isfinite().all() for output in alone[0]):
                break  # otherwise the noise pushed some function out of its domain: try again without
        # After a random draw (dropout, sampling) values change from call to call: from there only shapes are compared.
        repeatable = list(itertools.accumulate(map(same, alone[0], again), operator.and_))
        for m, parts in enumerate(alone):
            found = disagreement(type(net).__name__, m, together, parts, repeatable)
            if found is not None:
                return found
        return None

    return in_best_precision(compare)


def disagreement(
    network: str, m: int, together: list[Output], alone: list[Output], repeatable: list[bool]
) -> Disagreement | None:
    """Compares member m within the ensemble with the same member alone, output by output."""
    if [output.layer for output in alone] != [output.layer for output in together]:
        return Disagreement("", f"{network}: expected every member to take one path through the layers")
    for whole, part, by_value in zip(together, alone, repeatable, strict=False):
        mine = member_of(whole, 2, m)
        if mine is not None and mine.shape == part.values.shape and (not by_value or agree(mine, part.values)):
            continue
        if whole.layer:
            return Disagreement(whole.layer, "the members are not one after another in its batch")
        return Disagreement("", f"{network}: {DEPENDS}")
    return None


def same_as_original(net: nn.Module, members: int, original: nn.Module, example: Tensor) -> None:
    """Checks that with all factors at one, every member returns what the original network does."""
    probe, plain = comparable(net), comparable(original)
    for factor in named_factors(probe).values():
        factor.data.zero_()
    x = examples(example, 2)
    with tf32(False):
        (answer,), (again,) = outputs(plain, {}, x), outputs(plain, {}, x, seed=1)
        if not same(answer, again):
            return  # the original is random: it does not even agree with itself
        (whole,) = outputs(probe, {}, tiled(x, members))
    error = max(deviation(member_of(whole, members, m), answer.values) for m in range(members))
    if error > SAME.get(answer.values.dtype, 1e-5):
        raise ValueError(
            f"net: expected members at factors one to answer as {type(original).__name__} does, "
            f"got a relative deviation of {error:.1e}"
        )


def in_best_precision(compare: Callable[[torch.dtype], Answer]) -> Answer:
    """Compares in float64, or in float32 where the network or device does not support float64."""
    try:
        return compare(torch.float64)
    except (RuntimeError, TypeError):
        return compare(torch.float32)


def randomise(probe: nn.Module, members: int, noise: float) -> None:
    """Gives a probe this many members with factors from U(0.5, 1.5), and adds noise to all other parameters."""
    draws = torch.Generator().manual_seed(0)
    factors = named_factors(probe)
    for name, parameter in probe.named_parameters():
        if name in factors:
            parameter.data = (torch.rand(members, parameter.shape[1], generator=draws) - 0.5).to(parameter)
        elif parameter.is_floating_point():
            parameter.data.add_(noise * torch.randn(parameter.shape, generator=draws).to(parameter))
