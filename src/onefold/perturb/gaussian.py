"""Gaussian noise."""

from __future__ import annotations

from torch import Tensor

from onefold.perturb.direction import check_inputs
from onefold.perturb.draws import DRAWS, Draws
from onefold.perturb.space import PIXELS, InputSpace
from onefold.types import Ensemble, Student


def gaussian(
    x: Tensor,
    teachers: Ensemble | None,  # noqa: ARG001
    student: Student,  # noqa: ARG001
    *,
    space: InputSpace = PIXELS,
    draws: Draws = DRAWS,
) -> Tensor:
    """x + gamma z with z ~ N(0, 1) for each pixel and gamma = 1/255."""
    check_inputs(x, space)
    return space.move(x, draws.normal(x))
