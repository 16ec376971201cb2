"""Passes of a batch through one network in a step, by method and perturbation."""

from __future__ import annotations

from dataclasses import dataclass

from onefold.methods import Method, Perturbing, method_named, perturbation_named, tiny
from onefold.recipe import Recipe


@dataclass(frozen=True)
class Passes:
    """A pass is one batch through one network, or one member of it."""

    teachers_forward: int
    teachers_to_input: int  # backward passes to the input alone: half the work of one to the weights, too
    student_forward: int
    student_to_input: int
    student_backward: int

    @property
    def equivalents(self) -> int:
        """The work in forward passes: the gradient of the activations costs one, that of the weights another."""
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
    """Of a training step with M teachers."""
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
    """Forward passes that a step of a recipe's student, or of one of its teachers, is worth."""
    if not student:
        return 1 + 2  # forward, and back to activations and weights
    method, perturbation = method_named(recipe.distill.method), perturbation_named(recipe.distill.perturbation)
    return passes_of(method, perturbation, recipe.members).equivalents
