"""Chooses the memory format of a job's training, by trying one of its steps with a copy of the student."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.optim import Optimizer

from onefold.engine.layout import INNERMOST, OUTERMOST, differentiate, layout_for
from onefold.engine.optim.factories import optimizer_for
from onefold.methods import PERTURBATIONS, AnyStudent

if TYPE_CHECKING:
    from onefold.engine.step import Loss
    from onefold.engine.training import Job


def layout_of_job(
    job: Job,
    student: AnyStudent,
    loss_for: Callable[[AnyStudent, torch.memory_format], Loss],
    x: Tensor,
    labels: Tensor,
) -> torch.memory_format:
    """Channels-last if everything in a step works with it. `loss_for` makes a loss for a copy of the student."""
    if not job.settings.fast:
        return OUTERMOST
    optim, alone = job.settings.optim, job.world.size == 1
    few = -(-optim.batch_size // optim.accumulate)  # at most as many examples at once as a training step has

    def one_step(other: AnyStudent, layout: torch.memory_format) -> None:
        if alone:
            loss_for(other, layout)(x[:few], labels[:few]).backward()
        else:  # the loss may need all processes, and would keep others waiting if it failed in one
            differentiate(x[:few], other, layout)
        if job.optimizer is None:
            return  # torch's SGD works with any memory format; a custom optimizer may not
        optimizer = optimizer_for(other, job.settings, job.optimizer, unsaid=job.unsaid)
        if not alone and layout is INNERMOST and not of_torch(optimizer):  # a step of it may need all processes, too
            raise ValueError(f"with several processes, a step of {type(optimizer).__name__} cannot be tried")
        optimizer.step()

    known = job.perturbation is PERTURBATIONS.get(job.perturbation.name)  # another may follow a gradient unsaid
    followed = bool(job.perturbation.passes[1]) or not known
    asked = job.teachers, x, one_step, job.say, job.world
    return layout_for(student, *asked, few=few, followed=followed)


def of_torch(optimizer: Optimizer) -> bool:
    """Whether it is one of torch.optim's own."""
    return type(optimizer).__module__.startswith("torch.optim.")
