"""The methods: a student, an objective, a way to serve what was trained, and a way to predict with it.

Nothing else distinguishes one method from another. A `Method` of your own goes wherever a method's name does.
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import Tensor, nn

from onefold.ensemble import BatchEnsemble, Plain, batch_ensemble, collapse
from onefold.metrics import log_mean_probabilities
from onefold.objectives import aekd, cross_entropy, dirichlet_mean, kd, one_to_one, proxy_end2
from onefold.perturb import confods, gaussian, none, ods, tdiv, tdiv_sdiv
from onefold.types import Ensemble, Prediction

AnyStudent = BatchEnsemble | Plain


def plain(net: nn.Module, members: int, example: Tensor | None = None) -> Plain:  # noqa: ARG001
    """The network itself, whatever the number of teachers."""
    return Plain(net)


def be(net: nn.Module, members: int, example: Tensor | None = None) -> BatchEnsemble:
    """A batch ensemble with factors from N(1, 0.5^2)."""
    return batch_ensemble(net, members, "normal", example=example)


def latent_be(net: nn.Module, members: int, example: Tensor | None = None) -> BatchEnsemble:
    """A batch ensemble with factors at one, pulled to one."""
    return batch_ensemble(net, members, "ones", example=example)


def as_it_is(student: AnyStudent) -> Ensemble:
    """All members are asked, each in a pass of its own."""
    return student.at_rest


def averaged(student: AnyStudent) -> Ensemble:
    """One pass through the mean of the members' weights."""
    return Plain(collapse(student)).eval()


@dataclass(frozen=True)
class Method:
    """What distinguishes one method from another.

    student: makes the student of a network and the number of teachers.
    objective: a function of student logits, teacher logits and labels; further keywords are hyperparameters.
    serve: what is evaluated and deployed in the end.
    predict: the one answer, from its logits.
    """

    name: str
    student: Callable[[nn.Module, int, Tensor | None], AnyStudent]
    objective: Callable[..., Tensor]
    serve: Callable[[AnyStudent], Ensemble] = as_it_is
    predict: Prediction = log_mean_probabilities
    needs_teachers: bool = True
    has_members: bool = False


@dataclass(frozen=True)
class Perturbing:
    """A perturbation and what it asks of the others: so many teachers at least, a student with members."""

    name: str
    perturb: Callable[..., Tensor]
    teachers: int = 0
    needs_members: bool = False
    passes: tuple[int, int, int, int] = (0, 0, 0, 0)
    """that finding the direction takes: of teachers forward and back to the images, of members the same"""


METHODS = {
    method.name: method
    for method in (
        Method("supervised", plain, cross_entropy, needs_teachers=False),
        Method("kd", plain, kd),
        Method("aekd", plain, aekd),
        Method("proxy-end2", plain, proxy_end2, predict=dirichlet_mean),
        Method("be", be, one_to_one, has_members=True),
        Method("latentbe", latent_be, one_to_one, serve=averaged, has_members=True),
    )
}

PERTURBATIONS = {
    perturbing.name: perturbing
    for perturbing in (
        Perturbing("none", none),
        Perturbing("gaussian", gaussian),
        Perturbing("ods", ods, teachers=1, passes=(1, 1, 0, 0)),
        Perturbing("confods", confods, teachers=1, passes=(1, 1, 0, 0)),
        Perturbing("tdiv", tdiv, teachers=2, passes=(2, 1, 0, 0)),
        Perturbing("tdiv-sdiv", tdiv_sdiv, teachers=2, needs_members=True, passes=(2, 1, 2, 1)),
    )
}


def method_named(method: str | Method) -> Method:
    return method if isinstance(method, Method) else named("method", method, METHODS)


def perturbation_named(perturbation: str | Perturbing) -> Perturbing:
    if isinstance(perturbation, Perturbing):
        return perturbation
    return named("perturbation", perturbation, PERTURBATIONS)


def check_pair(method: Method, perturbation: Perturbing, members: int) -> None:
    """Refuses a perturbation that makes no sense for the method."""
    if perturbation.teachers and not method.needs_teachers:
        raise ValueError(
            f"perturbation: '{perturbation.name}' asks the teachers, and '{method.name}' has none; "
            "use 'none' or 'gaussian'"
        )
    if perturbation.needs_members and not method.has_members:
        raise ValueError(
            f"perturbation: '{perturbation.name}' needs a student with members, and '{method.name}' trains a plain "
            "network; use 'none', 'tdiv', which asks only the teachers, or the method 'latentbe'"
        )
    if method.needs_teachers and members < perturbation.teachers:
        raise ValueError(
            f"perturbation: '{perturbation.name}' needs at least {perturbation.teachers} teachers, got {members}; "
            "use --distill.perturbation none (perturbation='none' in Python), or train more teachers"
        )


def with_hyperparameters(function: Callable[..., Tensor], **hyperparameters: Any) -> Callable[..., Tensor]:
    """The function with those of the hyperparameters bound that it knows."""
    known = inspect.signature(function).parameters
    return functools.partial(function, **{k: v for k, v in hyperparameters.items() if k in known})


Entry = TypeVar("Entry")


def named(what: str, name: str, table: dict[str, Entry]) -> Entry:
    if name not in table:
        raise ValueError(f"{what}: {unknown(name, table)}")
    return table[name]


def unknown(name: str, known: Iterable[str]) -> str:
    """A sentence that offers the nearest right name."""
    known = list(known)
    near = difflib.get_close_matches(name, known, n=1)
    return f"there is no '{name}'" + (f"; did you mean '{near[0]}'?" if near else f"; there are {', '.join(known)}")
