"""Gaussian noise."""

from __future__ import annotations

import torch
from torch import Tensor

from onefold.perturb.direction import check_inputs
from onefold.perturb.space import PIXELS, InputSpace
from onefold.types import Ensemble, Student


def gaussian(x: Tensor, teachers: Ensemble | None, student: Student, *, space: InputSpace = PIXELS) -> Tensor:  # noqa: ARG001
    """x + gamma z with z ~ N(0, 1) for each pixel and gamma = 1/255."""
    check_inputs(x)
    return space.move(x, torch.randn_like(x))
