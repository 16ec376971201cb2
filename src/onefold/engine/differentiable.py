"""Finds teachers without input gradients before training: with them, gradient-based perturbations would do nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from onefold.engine.distributed.spread import SpreadTeachers
from onefold.ensemble.student import logits_of

if TYPE_CHECKING:
    from onefold.engine.training import Job


def check_differentiable(job: Job, x: Tensor) -> None:
    """If the perturbation needs the teachers' input gradients, refuses teachers whose outputs are detached from the
    inputs in the autograd graph. A gradient of zero is accepted: some examples have one."""
    _, backward, _, _ = job.perturbation.passes
    if job.teachers is None or not backward:
        return
    if isinstance(job.teachers, SpreadTeachers):
        own = [] if job.teachers.own is None else list(job.teachers.own.networks)
        held = dict(zip(job.teachers.held, own, strict=True))
        found = [one for of_one in job.world.collected(without_gradient(held, x)) for one in of_one]
    else:
        found = without_gradient(dict(enumerate(job.teachers.networks)), x)
    if found:
        raise ValueError(
            f"teachers: '{job.perturbation.name}' needs the gradient of their outputs with respect to the inputs, "
            f"but {found[0]}; use the perturbation 'none' or 'gaussian', or let the gradient through: no "
            "torch.no_grad(), no detach() and no NumPy in forward"
        )


def without_gradient(networks: dict[int, nn.Module], x: Tensor) -> list[str]:
    """A description of each network without an input gradient."""
    found = []
    for m, network in networks.items():
        who = f"teacher {m} ({type(network).__name__})"
        try:
            with torch.enable_grad():
                answers = logits_of(network, x.detach().clone().requires_grad_())
        except RuntimeError as error:  # for example from `.numpy()`, which refuses tensors that require a gradient
            found.append(f"{who} cannot compute it: {str(error).splitlines()[0]}")
            continue
        if not answers.requires_grad:
            found.append(f"{who} does not have it")
    return found
