"""One training step as a function: tensors in, a loss out."""

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
Step = Callable[[Tensor, Tensor], Tensor]  # the same, and updates the weights


def distillation_loss(
    x: Tensor,
    labels: Tensor,
    student: Student,
    teachers: Ensemble | None,
    objective: Objective,
    perturb: Perturbation | None,
) -> Tensor:
    """Perturbs the inputs, runs the teachers (without gradients) and the student on them, and applies the objective.

    Random numbers are drawn on the device of x and there are no device syncs, so the whole function can be compiled
    into one graph and captured in a CUDA graph.
    """
    if perturb is not None:
        x = checked_inputs(x, perturb(x, teachers, student))
    if teachers is None:
        return checked_loss(objective(student(x), None, labels))
    targets = beside(partial(without_gradient, teachers, x), room=teachers.members)
    answers = student(x)
    return checked_loss(objective(answers, targets.wait(), labels))


def checked_inputs(x: Tensor, moved: Tensor) -> Tensor:
    """The perturbed inputs; refuses any of another shape or dtype. Under autocast an operation may round them."""
    if not isinstance(moved, Tensor):
        raise ValueError(f"perturbation: expected it to return the perturbed inputs, got {type(moved).__name__}")
    same_type = moved.dtype == x.dtype or (moved.is_floating_point() and torch.is_autocast_enabled(x.device.type))
    if moved.shape != x.shape or not same_type:
        raise ValueError(
            f"perturbation: expected it to return inputs like those it was given, {x.dtype} {list(x.shape)}, got "
            f"{moved.dtype} {list(moved.shape)}"
        )
    return moved


def checked_loss(value: Tensor) -> Tensor:
    """The loss; refuses anything but a scalar tensor."""
    if not isinstance(value, Tensor):
        raise ValueError(f"objective: expected it to return a scalar tensor, got {type(value).__name__}")
    if value.dim() or not value.is_floating_point():
        raise ValueError(
            f"objective: expected it to return a scalar tensor, the mean over the examples, got {value.dtype} "
            f"{list(value.shape)}"
        )
    return value


@torch.no_grad()
def without_gradient(ensemble: Ensemble, x: Tensor) -> Tensor:
    return ensemble(x)


@dataclass(frozen=True)
class TrainingStep:
    """A step in two halves. Neither syncs with the device, so that both can be captured."""

    differentiate: Step
    """computes the loss and leaves the gradients in the parameters"""
    update: Callable[[], None]
    """updates the weights and their moving average"""
    gradients: Gradients | None = None
    """what computes weight gradients concurrently with the rest of the backward pass"""

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
    """Forward, backward, and the update of the weights and of their moving average.

    With `accumulate` the batch is processed in that many parts, whose gradients add up to that of the whole batch. The
    result is the same except for rounding, BatchNorm's statistics, and perturbations, which draw anew for every part.
    Each of several processes works on its part of the batch; after `world.summed`, gradients and loss are those of the
    whole batch. `gradients` computes the weight gradients of convolutions concurrently with the rest of the backward
    pass.
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
                if share != 1:  # multiplying by one would still launch a kernel, and another in the backward pass
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

    return TrainingStep(differentiate, update, gradients)
