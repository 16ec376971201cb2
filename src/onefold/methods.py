"""The methods: a student, an objective, a way to serve what was trained, and a way to predict with it.

Nothing else distinguishes one method from another. A `Method` of your own goes wherever a method's name does.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from onefold.ensemble import BatchEnsemble, Plain, batch_ensemble, collapse
from onefold.metrics import log_mean_probabilities
from onefold.names import METHOD_NEEDS, PERTURBATION_NEEDS, MethodNeeds, PerturbationNeeds, named
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
class Method(MethodNeeds):
    """What distinguishes one method from another, beside its name and what it needs.

    student: makes the student of a network and the number of teachers.
    objective: a function of student logits, teacher logits and labels; further keywords are hyperparameters.
    serve: what is evaluated and deployed in the end.
    predict: the one answer, from its logits.
    """

    student: Callable[[nn.Module, int, Tensor | None], AnyStudent]
    objective: Callable[..., Tensor]
    serve: Callable[[AnyStudent], Ensemble] = as_it_is
    predict: Prediction = log_mean_probabilities


@dataclass(frozen=True)
class Perturbing(PerturbationNeeds):
    """A perturbation, beside its name and what it asks of the others."""

    perturb: Callable[..., Tensor]
    passes: tuple[int, int, int, int] = (0, 0, 0, 0)
    """that finding the direction takes: of teachers forward and back to the images, of members the same"""


METHODS = {
    method.name: method
    for method in (
        Method(**vars(METHOD_NEEDS["supervised"]), student=plain, objective=cross_entropy),
        Method(**vars(METHOD_NEEDS["kd"]), student=plain, objective=kd),
        Method(**vars(METHOD_NEEDS["aekd"]), student=plain, objective=aekd),
        Method(**vars(METHOD_NEEDS["proxy-end2"]), student=plain, objective=proxy_end2, predict=dirichlet_mean),
        Method(**vars(METHOD_NEEDS["be"]), student=be, objective=one_to_one),
        Method(**vars(METHOD_NEEDS["latentbe"]), student=latent_be, objective=one_to_one, serve=averaged),
    )
}

PERTURBATIONS = {
    perturbing.name: perturbing
    for perturbing in (
        Perturbing(**vars(PERTURBATION_NEEDS["none"]), perturb=none),
        Perturbing(**vars(PERTURBATION_NEEDS["gaussian"]), perturb=gaussian),
        Perturbing(**vars(PERTURBATION_NEEDS["ods"]), perturb=ods, passes=(1, 1, 0, 0)),
        Perturbing(**vars(PERTURBATION_NEEDS["confods"]), perturb=confods, passes=(1, 1, 0, 0)),
        Perturbing(**vars(PERTURBATION_NEEDS["tdiv"]), perturb=tdiv, passes=(2, 1, 0, 0)),
        Perturbing(**vars(PERTURBATION_NEEDS["tdiv-sdiv"]), perturb=tdiv_sdiv, passes=(2, 1, 2, 1)),
    )
}


def method_named(method: str | Method) -> Method:
    return method if isinstance(method, Method) else named("method", method, METHODS)


def perturbation_named(perturbation: str | Perturbing) -> Perturbing:
    if isinstance(perturbation, Perturbing):
        return perturbation
    return named("perturbation", perturbation, PERTURBATIONS)


def with_hyperparameters(function: Callable[..., Tensor], **hyperparameters: Any) -> Callable[..., Tensor]:
    """The function with those of the hyperparameters bound that it knows."""
    known = inspect.signature(function).parameters
    return functools.partial(function, **{k: v for k, v in hyperparameters.items() if k in known})
