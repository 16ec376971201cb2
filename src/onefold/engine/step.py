"""What runs for a batch, as one function: tensors in, a loss out."""

from __future__ import annotations

import torch
from torch import Tensor

from onefold.types import Ensemble, Objective, Perturbation, Student


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
    if teachers is None:
        return objective(student(x), None, labels)
    if perturb is not None:
        x = perturb(x, teachers, student)
    with torch.no_grad():
        targets = teachers(x)
    return objective(student(x), targets, labels)
