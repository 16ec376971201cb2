"""Supervised training, with which teachers are made."""

from __future__ import annotations

from torch import Tensor

from onefold.objectives.soft_cross_entropy import Reduction, reduced
from onefold.types import at_least_float32, check_labels, check_logits


def cross_entropy(
    student: Tensor,
    teachers: Tensor | None,  # noqa: ARG001
    labels: Tensor,
    *,
    label_smoothing: float = 0.0,
    reduction: Reduction = "mean",
) -> Tensor:
    """H[y, p_S(x)], with labels y smoothed to (1 - e) y + e/K if e = `label_smoothing` is given. Ignores teachers."""
    if not 0 <= label_smoothing < 1:
        raise ValueError(f"label_smoothing: expected at least 0 and less than 1, got {label_smoothing}")
    check_logits("student", student)
    check_labels(labels, student.shape[-1], student.shape[1])
    log_p = at_least_float32(student).log_softmax(-1)
    index = labels.long().expand(student.shape[0], -1).unsqueeze(-1)
    values = -log_p.gather(-1, index).squeeze(-1)
    if label_smoothing:
        values = (1 - label_smoothing) * values - label_smoothing * log_p.mean(-1)
    return reduced(values, reduction)
