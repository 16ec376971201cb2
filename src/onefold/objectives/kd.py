"""Ensemble distillation (KD): the student learns the teachers' mean prediction."""

from __future__ import annotations

from torch import Tensor

from onefold.objectives.soft_cross_entropy import Reduction, check_hyperparameters, distillation, prepared


def kd(
    student: Tensor,
    teachers: Tensor | None,
    labels: Tensor | None,
    *,
    alpha: float = 1.0,
    temperature: float = 4.0,
    label_temperature: float | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """(1 - alpha) H[y, p_S(x; tau)] + alpha tau^2 1/M sum_m H[p_Tm(x; tau), p_S(x; tau)].

    The paper's label term is at the temperature tau, too; `label_temperature=1.0` gives the common variant.
    """
    check_hyperparameters(alpha, temperature, label_temperature)
    student, teachers = prepared(student, teachers)
    # H is linear in its first argument: the mean of the cross-entropies is the cross-entropy with the mean.
    targets = (teachers / temperature).softmax(-1).mean(0)
    return distillation(student, targets, labels, alpha, temperature, label_temperature, reduction)
