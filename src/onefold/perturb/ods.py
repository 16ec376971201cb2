"""Output diversified sampling, plain and scaled by confidence (Nam et al., 2021)."""

from __future__ import annotations

from torch import Tensor

from onefold.perturb.direction import check_inputs, check_teachers, input_gradient
from onefold.perturb.draws import DRAWS, Draws
from onefold.perturb.space import PIXELS, InputSpace
from onefold.types import Ensemble, Student, at_least_float32


def ods(
    x: Tensor,
    teachers: Ensemble,
    student: Student,  # noqa: ARG001
    *,
    temperature: float = 4.0,
    space: InputSpace = PIXELS,
    draws: Draws = DRAWS,
) -> Tensor:
    """x + eta g / |g|, where g is the gradient of w^T p_T(x; tau).

    One teacher T is drawn for the batch, and a guidance vector w ~ U(-1, 1)^K for each image; eta = sqrt(D)/255.
    """
    check_inputs(x, space)
    gradient, _ = guided_gradient(x, teachers, temperature, draws)
    return space.ascend(x, gradient)


def confods(
    x: Tensor,
    teachers: Ensemble,
    student: Student,  # noqa: ARG001
    *,
    temperature: float = 4.0,
    space: InputSpace = PIXELS,
    draws: Draws = DRAWS,
) -> Tensor:
    """The ODS step times the confidence max_k p_T(x; tau) of the drawn teacher."""
    check_inputs(x, space)
    gradient, confidence = guided_gradient(x, teachers, temperature, draws)
    return space.ascend(x, gradient, confidence)


def guided_gradient(x: Tensor, teachers: Ensemble, temperature: float, draws: Draws) -> tuple[Tensor, Tensor]:
    """The gradient of w^T p_T(x; tau) for one drawn teacher, and that teacher's confidence `[B, 1]`."""
    if not 0 < temperature < float("inf"):
        raise ValueError(f"temperature: expected a positive number, got {temperature}")
    check_teachers(teachers)
    drawn = draws.integer(0, teachers.members, x.device)

    with teachers.picking(drawn) as teacher:

        def guided(z: Tensor) -> tuple[Tensor, Tensor]:
            probabilities = (at_least_float32(teacher(z)) / temperature).softmax(-1).squeeze(0)  # [B, K]
            guidance = 2 * draws.uniform(probabilities.shape, probabilities) - 1
            return (guidance * probabilities).sum(1), probabilities.amax(1, keepdim=True)

        return input_gradient(guided, x)
