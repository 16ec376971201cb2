"""How many passes of a batch through a network a step takes, by method and perturbation."""

from __future__ import annotations

from dataclasses import dataclass

from onefold.methods import Method, Perturbing, method_named, perturbation_named, tiny
from onefold.recipe import Recipe


@dataclass(frozen=True)
class Passes:
    """Numbers of passes. A pass is one batch through one network or one member."""

    teachers_forward: int
    teachers_to_input: int  # backward passes to the input only: half the work of one that also reaches the weights
    student_forward: int
    student_to_input: int
    student_backward: int

    @property
    def equivalents(self) -> int:
        """The work in units of forward passes: the gradient of activations costs one, that of weights another one."""
        forward = self.teachers_forward + self.student_forward
        return forward + self.teachers_to_input + self.student_to_input + 2 * self.student_backward

    def __str__(self) -> str:
        backward = self.student_backward + self.student_to_input
        if not self.teachers_forward:
            return f"{self.student_forward} forward and {backward} backward pass"
        teachers = f"teachers {self.teachers_forward} forward"
        teachers += f" and {self.teachers_to_input} backward" if self.teachers_to_input else ""
        return f"{teachers}; student {self.student_forward} forward and {backward} backward passes"


def passes_of(method: Method, perturbation: Perturbing, members: int) -> Passes:
    """The passes of a training step with M teachers."""
    ours = student_members(method, members)
    if not method.needs_teachers:
        return Passes(0, 0, ours, 0, ours)
    direction = perturbation.passes
    return Passes(members + direction[0], direction[1], ours + direction[2], direction[3], ours)


def student_members(method: Method, members: int) -> int:
    """How many times a batch goes through the student."""
    return tiny(method, members).members


def served_members(method: Method, members: int) -> int:
    """How many times an example goes through what is evaluated and deployed."""
    return method.serve(tiny(method, members)).members


def passes_of_step(recipe: Recipe, *, student: bool) -> int:
    """The work of a step of a recipe's student, or of one of its teachers, in units of forward passes."""
    if not student:
        return 1 + 2  # forward, and backward to activations and weights
    method, perturbation = method_named(recipe.distill.method), perturbation_named(recipe.distill.perturbation)
    return passes_of(method, perturbation, recipe.members).equivalents
