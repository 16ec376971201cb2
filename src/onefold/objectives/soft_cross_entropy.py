"""The student's cross-entropies at a temperature, shared by the distillation objectives."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from onefold.types import at_least_float32, check_classes, check_labels, check_logits

Reduction = Literal["mean", "none"]


def distillation(
    student: Tensor,
    targets: Tensor,
    labels: Tensor | None,
    alpha: float,
    temperature: float,
    label_temperature: float | None,
    reduction: Reduction,
) -> Tensor:
    """(1 - alpha) H[y, p_S(x; tau_y)] + alpha tau^2 H[q, p_S(x; tau)] for targets q, `[B, K]` or for each member.

    With alpha = 1 the labels are ignored. tau_y is tau if no `label_temperature` is given.
    """
    log_p = (student / temperature).log_softmax(-1)
    soft = -(temperature**2) * (targets * log_p).sum(-1)  # [m, B]
    if alpha == 1:
        return reduced(soft, reduction)
    if labels is None:
        raise ValueError(f"labels: expected class indices [B] where alpha is below 1 (got {alpha}), got None")
    check_labels(labels, student.shape[-1], student.shape[1])
    log_p = (student / (label_temperature or temperature)).log_softmax(-1)
    index = labels.long().expand(student.shape[0], -1).unsqueeze(-1)
    return reduced(alpha * soft - (1 - alpha) * log_p.gather(-1, index).squeeze(-1), reduction)


def prepared(student: Tensor, teachers: Tensor | None) -> tuple[Tensor, Tensor]:
    """Checks the logits and returns them in at least float32, the teachers' detached."""
    if teachers is None:
        raise ValueError("teachers: expected logits [M, B, K], got None; this objective needs teachers")
    check_logits("student", student)
    check_logits("teachers", teachers)
    check_classes(student, teachers)
    student, teachers = at_least_float32(student), at_least_float32(teachers.detach())
    dtype = torch.promote_types(student.dtype, teachers.dtype)
    return student.to(dtype), teachers.to(dtype)


def check_hyperparameters(
    alpha: float, temperature: float, label_temperature: float | None = None, weight_temperature: float | None = None
) -> None:
    """Refuses alpha outside [0, 1] and temperatures that are not positive."""
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha: expected a value from 0 to 1, got {alpha}")
    for name, value in (
        ("temperature", temperature),
        ("label_temperature", label_temperature),
        ("weight_temperature", weight_temperature),
    ):
        if value is not None and not 0 < value < float("inf"):
            raise ValueError(f"{name}: expected a positive number, got {value}")


def reduced(values: Tensor, reduction: Reduction) -> Tensor:
    """The mean over members and images, or all values `[m, B]`."""
    if reduction not in ("mean", "none"):
        raise ValueError(f"reduction: expected 'mean' or 'none', got {reduction!r}")
    return values.mean() if reduction == "mean" else values
