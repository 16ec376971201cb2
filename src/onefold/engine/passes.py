"""What a step costs, counted in passes of a batch through one network."""

from __future__ import annotations

from onefold.methods import method_named, perturbation_named
from onefold.recipe import Recipe

# Forward and backward passes that finding the direction takes, of teachers and of student members.
DIRECTION = {"ods": (1, 1, 0, 0), "confods": (1, 1, 0, 0), "tdiv": (2, 1, 0, 0), "tdiv-sdiv": (2, 1, 2, 1)}
BACKWARD = 2  # forward passes that a backward pass costs: gradients of the weights and of the inputs


def passes_of_step(recipe: Recipe, *, student: bool) -> int:
    """Forward passes that a step is worth. A direction needs the gradient of the images only: half a backward pass."""
    method = method_named(recipe.distill.method if student else "supervised")
    members = recipe.members if student and method.has_members else 1
    teachers = recipe.members if student and method.needs_teachers else 0
    looking = DIRECTION.get(perturbation_named(recipe.distill.perturbation).name, ()) if student else ()
    return teachers + members * (1 + BACKWARD) + sum(looking)
