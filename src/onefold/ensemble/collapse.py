"""Turns a student back into one ordinary network."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from onefold.ensemble.fold import folded
from onefold.ensemble.student import BatchEnsemble, Plain


def collapse(student: BatchEnsemble | Plain) -> nn.Module:
    """The averaged network: theta o (1/M sum_m r_m s_m^T).

    Returns an ordinary network of the original class with the original state_dict keys, sharing no memory with the
    student. Its weights are the exact mean of the members' weights; everything shared is copied unchanged.

    Args:
        student: a trained student made by `batch_ensemble`.
    """
    check_student("collapse", student)
    return interpolate(student, [1 / student.members] * student.members)


def subnetwork(student: BatchEnsemble | Plain, m: int) -> nn.Module:
    """Member m, theta o (r_m s_m^T), as an ordinary network of the original class with the original state_dict keys.

    Args:
        student: a student made by `batch_ensemble`.
        m: the member, from 0 to M - 1.
    """
    check_student("subnetwork", student)
    if isinstance(m, bool) or not isinstance(m, int) or not 0 <= m < student.members:
        raise ValueError(f"m: expected a member from 0 to {student.members - 1}, got {m!r}")
    return interpolate(student, [float(i == m) for i in range(student.members)])


def interpolate(student: BatchEnsemble | Plain, coefficients: Sequence[float]) -> nn.Module:
    """theta o (sum_m c_m r_m s_m^T): the point of the members' subspace with these coefficients."""
    check_student("interpolate", student)
    if len(coefficients) != student.members:
        raise ValueError(f"coefficients: expected {student.members}, one a member, got {len(coefficients)}")
    return folded(student.net, coefficients)


def check_student(function: str, student: object) -> None:
    if not isinstance(student, (BatchEnsemble, Plain)):
        raise ValueError(f"{function}: expected a student made by batch_ensemble, got {type(student).__name__}")
