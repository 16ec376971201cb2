"""What runs for a batch, as one function: tensors in, a loss out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce

import torch
from torch import Tensor
from torch.optim import Optimizer

from onefold.engine.distributed.world import ALONE, World
from onefold.engine.optim.ema import MovingAverage
from onefold.fast.convolve import Gradients, gradients_beside
from onefold.fast.streams import beside, given_back
from onefold.types import Ensemble, Objective, Perturbation, Student

Loss = Callable[[Tensor, Tensor], Tensor]  # x [B, ...] and labels [B] to a scalar
Step = Callable[[Tensor, Tensor], Tensor]  # the same, and the weights have moved


def distillation_loss(
    x: Tensor,
    labels: Tensor,
    student: Student,
    teachers: Ensemble | None,
    objective: Objective,
    perturb: Perturbation | None,
) -> Tensor:
    """Perturb, ask the teachers without gradient, ask the student, compare.

    Randomness is drawn on the device of x and nothing waits for the host, so the whole function can be compiled into
    one graph and captured.
    """
    if perturb is not None:
        x = perturb(x, teachers, student)
    if teachers is None:
        return objective(student(x), None, labels)
    targets = beside(partial(without_gradient, teachers, x), room=teachers.members)
    answers = student(x)
    return objective(answers, targets.wait(), labels)


@torch.no_grad()
def without_gradient(ensemble: Ensemble, x: Tensor) -> Tensor:
    return ensemble(x)


@dataclass(frozen=True)
class TrainingStep:
    """A step in its two halves. Neither waits for anything, so that both can be captured."""

    differentiate: Step
    """the loss; the gradients are left with the parameters"""
    update: Callable[[], None]
    """the weights move, and so does their average"""

    def __call__(self, x: Tensor, labels: Tensor) -> Tensor:
        loss = self.differentiate(x, labels)
        self.update()
        return loss


def training_step(
    loss: Loss,
    optimizer: Optimizer,
    *,
    clip: float | None = None,
    accumulate: int = 1,
    ema: MovingAverage | None = None,
    precision: str = "float32",
    gradients: Gradients | None = None,
    world: World = ALONE,
) -> TrainingStep:
    """The loss, its gradient, the update of the weights and of their average.

    With `accumulate` the batch is worked through in that many parts, whose gradients add up to that of the whole: the
    same but for rounding, for what BatchNorm sees, and for a perturbation, which draws anew for every part. Of several
    processes each works on its part of the batch; after `world.summed`, gradients and loss are those of the whole.
    `gradients` computes those of the convolutions' weights beside the rest of the backward pass.
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"]]

    def differentiate(x: Tensor, labels: Tensor) -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        if gradients is not None:
            gradients.begin()
        values: list[Tensor] = []
        for part, answers, share in world.pieces(x, labels, accumulate):
            autocast = torch.autocast(x.device.type, torch.bfloat16, enabled=precision == "bf16")
            with autocast, gradients_beside(gradients), given_back():
                value = loss(part, answers)
                if share != 1:  # on a GPU, a product with one is a kernel all the same, and so is its gradient
                    value = value * share
            value.backward()
            values.append(value.detach())
        if gradients is not None:
            gradients.join()
        return world.summed(parameters, reduce(torch.add, values))

    def update() -> None:
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(parameters, clip)
        optimizer.step()
        if ema is not None:
            ema.update()

    return TrainingStep(differentiate, update)
