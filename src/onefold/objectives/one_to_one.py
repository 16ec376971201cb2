"""One-to-one distillation: member m of the student learns from teacher m (BE and LatentBE)."""

from __future__ import annotations

from torch import Tensor

from onefold.objectives.soft_cross_entropy import Reduction, check_hyperparameters, distillation, prepared


def one_to_one(
    student: Tensor,
    teachers: Tensor | None,
    labels: Tensor | None,
    *,
    alpha: float = 1.0,
    temperature: float = 4.0,
    label_temperature: float | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """(1 - alpha) H[y, p_Sm(x; tau)] + alpha tau^2 H[p_Tm(x; tau), p_Sm(x; tau)], averaged over the members m."""
    check_hyperparameters(alpha, temperature, label_temperature)
    student, teachers = prepared(student, teachers)
    if student.shape[0] != teachers.shape[0]:
        raise ValueError(
            f"student: expected {teachers.shape[0]} members, one for each teacher, got {student.shape[0]}; "
            "make it with batch_ensemble(net, members=M)"
        )
    targets = (teachers / temperature).softmax(-1)
    return distillation(student, targets, labels, alpha, temperature, label_temperature, reduction)
