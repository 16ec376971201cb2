"""The methods: a student, an objective, a way to serve what was trained, and a way to predict with it.

Nothing else distinguishes one method from another. A `Method` of your own goes wherever a method's name does.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from onefold.ensemble import BatchEnsemble, Plain, batch_ensemble, collapse
from onefold.metrics import log_mean_probabilities
from onefold.names import METHOD_NEEDS, PERTURBATION_NEEDS, misfit, named
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
    needs_teachers: whether the objective asks them.
    has_members: seen in a student of a small network; what is said here counts only where none can be made.
    """

    name: str
    student: Callable[[nn.Module, int, Tensor | None], AnyStudent]
    objective: Callable[..., Tensor]
    serve: Callable[[AnyStudent], Ensemble] = as_it_is
    predict: Prediction = log_mean_probabilities
    needs_teachers: bool = True
    has_members: bool = True  # if it cannot be seen: TDiv-SDiv refuses a plain student by itself, once there is one

    def __post_init__(self) -> None:
        with contextlib.suppress(Exception):  # a student that is made of other networks only may raise anything
            object.__setattr__(self, "has_members", tiny(self, 2).members > 1)


@dataclass(frozen=True)
class Perturbing:
    """A perturbation and what it asks of the others: so many teachers at least, a student with members."""

    name: str
    perturb: Callable[..., Tensor]
    teachers: int = 0
    needs_members: bool = False
    passes: tuple[int, int, int, int] = (0, 0, 0, 0)
    """that finding the direction takes: of teachers forward and back to the images, of members the same"""


def shipped(name: str, student: Callable[..., AnyStudent], objective: Callable[..., Tensor], **more: Any) -> Method:
    """A method of which `names.py` says what it needs."""
    return Method(**vars(METHOD_NEEDS[name]), student=student, objective=objective, **more)


def shipped_perturbation(name: str, perturb: Callable[..., Tensor], **more: Any) -> Perturbing:
    """The same for a perturbation."""
    return Perturbing(**vars(PERTURBATION_NEEDS[name]), perturb=perturb, **more)


METHODS = {
    method.name: method
    for method in (
        shipped("supervised", plain, cross_entropy),
        shipped("kd", plain, kd),
        shipped("aekd", plain, aekd),
        shipped("proxy-end2", plain, proxy_end2, predict=dirichlet_mean),
        shipped("be", be, one_to_one),
        shipped("latentbe", latent_be, one_to_one, serve=averaged),
    )
}

PERTURBATIONS = {
    perturbing.name: perturbing
    for perturbing in (
        shipped_perturbation("none", none),
        shipped_perturbation("gaussian", gaussian),
        shipped_perturbation("ods", ods, passes=(1, 1, 0, 0)),
        shipped_perturbation("confods", confods, passes=(1, 1, 0, 0)),
        shipped_perturbation("tdiv", tdiv, passes=(2, 1, 0, 0)),
        shipped_perturbation("tdiv-sdiv", tdiv_sdiv, passes=(2, 1, 2, 1)),
    )
}


def tiny(method: Method, members: int) -> AnyStudent:
    """A student of the method, whatever it is made of."""
    with torch.random.fork_rng(devices=[]):
        return method.student(nn.Linear(2, 2), members, torch.zeros(2, 2))


def method_named(method: str | Method) -> Method:
    return method if isinstance(method, Method) else named("method", method, METHODS)


def perturbation_named(perturbation: str | Perturbing) -> Perturbing:
    if isinstance(perturbation, Perturbing):
        return perturbation
    return named("perturbation", perturbation, PERTURBATIONS)


def own_perturbation(method: Method, teachers: int) -> Perturbing:
    """What a method is trained with where nothing is said: TDiv-SDiv, or no perturbation where that makes no sense."""
    paper = PERTURBATIONS["tdiv-sdiv"]
    return paper if misfit(method, paper, teachers) is None else PERTURBATIONS["none"]


def with_hyperparameters(function: Callable[..., Tensor], **hyperparameters: Any) -> Callable[..., Tensor]:
    """The function with those of the hyperparameters bound that it knows."""
    known = inspect.signature(function).parameters
    return functools.partial(function, **{k: v for k, v in hyperparameters.items() if k in known})
