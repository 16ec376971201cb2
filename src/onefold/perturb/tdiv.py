"""The paper's diversifying perturbations: drive teachers apart and, in TDiv-SDiv, student members together."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from onefold.fast.streams import beside, together
from onefold.perturb.direction import check_ensemble, check_inputs, check_teachers, input_gradient
from onefold.perturb.draws import DRAWS, Draws
from onefold.perturb.space import PIXELS, InputSpace
from onefold.types import Ensemble, Student, at_least_float32


def tdiv(
    x: Tensor,
    teachers: Ensemble,
    student: Student,  # noqa: ARG001
    *,
    space: InputSpace = PIXELS,
    draws: Draws = DRAWS,
) -> Tensor:
    """x + eta g / |g|, where g is the gradient of TDiv(x) = KL(sg(p_Ti(x)) || p_Tj(x)); eta = sqrt(D)/255."""
    check_inputs(x, space)
    check_teachers(teachers)
    check_members(teachers.members)
    i, j = draw_pair(teachers.members, x.device, draws)
    return space.ascend(x, divergence_gradient(x, teachers, i, j))


def tdiv_sdiv(
    x: Tensor, teachers: Ensemble, student: Student, *, space: InputSpace = PIXELS, draws: Draws = DRAWS
) -> Tensor:
    """x + eta g / |g|, where g is the gradient of TDiv(x) - SDiv(x); eta = sqrt(D)/255.

    SDiv(x) = KL(sg(p_Si(x)) || p_Sj(x)) uses the same pair i != j, drawn once for the batch, and the student in
    evaluation mode.
    """
    check_inputs(x, space)
    check_teachers(teachers)
    check_members(teachers.members)
    check_ensemble("student", student, "make a student with onefold.batch_ensemble(net, members)")
    check_student(teachers.members, student.members)
    i, j = draw_pair(teachers.members, x.device, draws)
    of_teachers, of_student = together(
        [partial(divergence_gradient, x, ensemble, i, j) for ensemble in (teachers, student.at_rest)], room=2
    )
    return space.ascend(x, of_teachers - of_student)


def draw_pair(members: int, device: torch.device, draws: Draws = DRAWS) -> tuple[Tensor, Tensor]:
    """A pair of different members, each `[1]`, uniform over all ordered pairs; the indices stay on the device."""
    i = draws.integer(0, members, device)
    return i, (i + draws.integer(1, members, device)) % members


def divergence_gradient(x: Tensor, ensemble: Ensemble, i: Tensor, j: Tensor) -> Tensor:
    """The gradient of KL(sg(p_i(x)) || p_j(x)) at temperature one.

    With the first argument constant, the divergence and the cross-entropy have the same gradient.
    """

    @torch.no_grad()
    def first() -> Tensor:
        return at_least_float32(ensemble(x, i)).softmax(-1)

    held = beside(first)  # [1, B, K], needed only once the other member's forward pass is done
    with ensemble.picking(j) as member:

        def cross_entropy(z: Tensor) -> tuple[Tensor, Tensor]:
            answers = at_least_float32(member(z)).log_softmax(-1)
            values = -(held.wait() * answers).sum((0, 2))
            return values, values

        return input_gradient(cross_entropy, x)[0]


def check_members(members: int) -> None:
    if members < 2:
        raise ValueError(f"teachers: a diversity needs at least 2 members, got {members}")


def check_student(teachers: int, student: int) -> None:
    if student < 2:
        raise ValueError(
            "student: tdiv-sdiv needs a student with members (batch_ensemble), got a plain network; "
            "use tdiv, which asks only the teachers"
        )
    if student != teachers:
        raise ValueError(f"student: expected {teachers} members, one for each teacher, got {student}")
