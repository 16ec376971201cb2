"""Whether a network still computes the same, once something about how it does so has changed."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from onefold.methods import AnyStudent

APART = 1e-3  # how far answers may be in full precision, as a part of the largest
NOISE = 0.1  # deviation of what takes the place of zeros
STEADY = 0.95  # cosine between one network's gradients in float32 and bf16, where rounding does not turn them
HALF = 0.5  # of one parameter's: far from what rounding does to it, and from none at all
NOTHING = 1e-3  # of the longest of a parameter's gradients: what may be rounding alone

Gradients = dict[str, Tensor]  # by parameter, each in one row


def close(found: Tensor, expected: Tensor, net: nn.Module) -> bool:
    """As numbers are that were summed in another order, in the precision of a network."""
    coarsest = max((torch.finfo(p.dtype).eps for p in net.parameters() if p.is_floating_point()), default=0.0)
    return bool((found - expected).abs().max() <= (APART + 4 * coarsest) * expected.abs().max())


@torch.no_grad()
def fill_zeros(*copies: nn.Module) -> None:
    """Weights that begin as zeros, such as a head's, hide what all that lies before them computes: in copies of a
    network that are compared they get the same noise."""
    draws = torch.Generator().manual_seed(0)
    for first, *others in zip(*(copy.parameters() for copy in copies), strict=True):
        if first.is_floating_point() and not first.any():
            first.copy_(NOISE * torch.randn(first.shape, generator=draws))
            for other in others:
                other.copy_(first)


def lost_gradients(found: Gradients, exact: Gradients, rounded: Gradients) -> list[str]:
    """Parameters whose gradient is far from the exact one, in direction or length, where a rounded one is not."""
    longest = max(float(e.norm()) for e in exact.values())
    lost = []
    for name, e in exact.items():
        length = float(e.norm())
        if length <= NOTHING * longest or likeness({name: rounded[name]}, {name: e}) < STEADY:
            continue  # nothing but rounding, as of a bias before a norm
        same = likeness({name: found[name]}, {name: e}) > HALF and HALF < float(found[name].norm()) / length < 1 / HALF
        lost += [] if same else [name]
    return lost


def gradient(student: AnyStudent, x: Tensor, precision: str) -> Gradients:
    """Of the mean square of a student's logits in training, by parameter."""
    student.zero_grad()
    with torch.random.fork_rng([x.device] if x.is_cuda else []):  # whoever draws, draws the same
        torch.manual_seed(0)
        with torch.autocast(x.device.type, torch.bfloat16, enabled=precision == "bf16"):
            student.train()(x).float().square().mean().backward()
    gradients = {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in student.named_parameters()}
    return {name: g.contiguous().flatten().double() for name, g in gradients.items()}


def likeness(one: Gradients, other: Gradients) -> float:
    """The cosine between them."""
    mine, theirs = (torch.cat([gradients[name] for name in other]) for gradients in (one, other))
    return float(torch.nn.functional.cosine_similarity(mine, theirs, dim=0))
