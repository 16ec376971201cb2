"""Adaptive ensemble distillation (AE-KD, Du et al., 2020): teachers weighted for each example."""

from __future__ import annotations

import torch
from torch import Tensor

from onefold.objectives.capped_simplex import capped_simplex_weights, check_cap, matvec
from onefold.objectives.precision import widest
from onefold.objectives.soft_cross_entropy import Reduction, check_hyperparameters, distillation, prepared


def aekd(
    student: Tensor,
    teachers: Tensor | None,
    labels: Tensor | None,
    *,
    alpha: float = 1.0,
    temperature: float = 4.0,
    cap: float = 0.6,
    label_temperature: float | None = None,
    weight_temperature: float = 1.0,
    reduction: Reduction = "mean",
) -> Tensor:
    """(1 - alpha) H[y, p_S(x; tau)] + alpha tau^2 sum_m omega_m H[p_Tm(x; tau), p_S(x; tau)].

    omega = argmin 1/2 |p_S(x) - sum_m omega_m p_Tm(x)|^2 subject to sum_m omega_m = 1, 0 <= omega_m <= C, for each
    example; no gradient flows through it. C = `cap` = 1/M is KD. The paper states this programme at temperature one,
    while the authors of AE-KD use tau there (`weight_temperature`). A single teacher has weight one, whatever C.
    """
    check_hyperparameters(alpha, temperature, label_temperature, weight_temperature)
    student, teachers = prepared(student, teachers)
    check_cap(cap, teachers.shape[0])
    weights = teacher_weights(student, teachers, cap, weight_temperature).to(student.dtype)  # [m, B, M]
    targets = (teachers / temperature).softmax(-1)  # [M, B, K]
    mixed = torch.stack([(w.T.unsqueeze(-1) * targets).sum(0) for w in weights])  # [m, B, K]
    return distillation(student, mixed, labels, alpha, temperature, label_temperature, reduction)


@torch.no_grad()
def teacher_weights(student: Tensor, teachers: Tensor, cap: float, temperature: float) -> Tensor:
    """The teachers' weights omega `[m, B, M]`."""
    p = (widest(student) / temperature).softmax(-1)  # [m, B, K]
    t = (widest(teachers) / temperature).softmax(-1).transpose(0, 1)  # [B, M, K]
    # Subtract the teachers' mean, which changes nothing because the weights sum to one: nearly equal teachers differ
    # only in digits that products of the raw probabilities would lose.
    p, t = p - t.mean(1), t - t.mean(1, keepdim=True)
    gram = torch.stack([(t * t[:, m : m + 1]).sum(-1) for m in range(t.shape[1])], -1)  # [B, M, M]
    return capped_simplex_weights(gram, matvec(t, p), cap)
