"""Checks that a network still computes the same after a change in how it does so."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from onefold.methods import AnyStudent

APART = 1e-3  # largest allowed difference of outputs in full precision, relative to the largest output
NOISE = 0.1  # standard deviation of the noise that replaces zeros
STEADY = 0.95  # cosine between a network's float32 and bf16 gradients above which rounding does not matter
# Smallest allowed cosine between gradients that should be the same, on a few examples:
ALIKE = 0.9  # in bf16, where the two round differently
EQUAL = 0.99  # in float32, where only the order of summation differs
TINY = 1e-300  # keeps a quotient of zeros from being none
HALF = 0.5  # smallest cosine, and ratio of lengths, for one parameter: rounding alone stays far above it
NOTHING = 1e-3  # share of the longest parameter gradient below which a gradient may be rounding alone

Gradients = dict[str, Tensor]  # by parameter name, each flattened


def close(found: Tensor, expected: Tensor, net: nn.Module) -> bool:
    """Whether two outputs differ by no more than another order of summation can cause in the network's precision."""
    coarsest = max((torch.finfo(p.dtype).eps for p in net.parameters() if p.is_floating_point()), default=0.0)
    return bool((found - expected).abs().max() <= (APART + 4 * coarsest) * expected.abs().max())


@torch.no_grad()
def fill_zeros(*copies: nn.Module) -> list[nn.Parameter]:
    """Replaces all-zero parameters by noise, the same in all copies of a network that are compared, and returns them: a
    head initialized to zero, for example, would hide whatever the layers before it compute."""
    draws = torch.Generator().manual_seed(0)
    filled: list[nn.Parameter] = []
    for first, *others in zip(*(copy.parameters() for copy in copies), strict=True):
        if not isinstance(first, UninitializedParameter) and first.is_floating_point() and not first.any():
            first.copy_(NOISE * torch.randn(first.shape, generator=draws))
            for other in others:
                other.copy_(first)
            filled += [first, *others]
    return filled


@torch.no_grad()
def empty(filled: list[nn.Parameter]) -> None:
    """Takes `fill_zeros` back: some parameters allow no noise, such as the argument of a square root."""
    for parameter in filled:
        parameter.zero_()
    filled.clear()


def finite(found: Gradients) -> bool:
    return all(bool(value.isfinite().all()) for value in found.values())


def same_gradients(found: Gradients, exact: Gradients, net: nn.Module) -> bool:
    """Whether two gradients differ by no more than another order of summation can cause in the network's precision."""
    if any(p.dtype in (torch.bfloat16, torch.float16) for p in net.parameters()):
        return likeness(found, exact) > ALIKE
    return likeness(found, exact) > EQUAL and not lost_gradients(found, exact, exact)


def lost_gradients(found: Gradients, exact: Gradients, rounded: Gradients) -> list[str]:
    """Parameters whose gradient is far from the exact one in direction or length, although the rounded one is not."""
    longest = max(float(e.norm()) for e in exact.values())
    lost = []
    for name, e in exact.items():
        length = float(e.norm())
        if length <= NOTHING * longest or likeness({name: rounded[name]}, {name: e}) < STEADY:
            continue  # nothing but rounding, like the gradient of a bias before a norm
        same = likeness({name: found[name]}, {name: e}) > HALF and HALF < float(found[name].norm()) / length < 1 / HALF
        lost += [] if same else [name]
    return lost


def gradient(student: AnyStudent, x: Tensor, precision: str) -> Gradients:
    """The gradient of the mean square of a student's logits in training mode, by parameter."""
    student.zero_grad()
    with torch.random.fork_rng([x.device] if x.is_cuda else []):  # the same dropout masks in every call
        torch.manual_seed(0)
        with torch.autocast(x.device.type, torch.bfloat16, enabled=precision == "bf16"):
            student.train()(x).float().square().mean().backward()
    held = {n: p for n, p in student.named_parameters() if not isinstance(p, UninitializedParameter)}
    return {n: flat(torch.zeros_like(p) if p.grad is None else p.grad) for n, p in held.items()}


def flat(g: Tensor) -> Tensor:
    """Its real numbers in the order of the indices, whatever its memory format."""
    g = g.to_dense() if g.layout is not torch.strided else g
    return (torch.view_as_real(g.resolve_conj()) if g.is_complex() else g).flatten()


def likeness(one: Gradients, other: Gradients) -> float:
    """The cosine similarity of two gradients, over all parameters together; one if both are zero."""
    pairs = ((one[name].double(), g.double()) for name, g in other.items())
    sums = torch.stack([torch.stack([a @ b, a @ a, b @ b]) for a, b in pairs]).sum(0)
    product, mine, theirs = sums.tolist()
    return 1.0 if mine == theirs == 0 else product / max(math.sqrt(mine) * math.sqrt(theirs), TINY)
