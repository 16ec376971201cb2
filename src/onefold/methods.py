"""The methods. Each is a student, an objective, what to serve after training, and how to predict with it.

Nothing else distinguishes one method from another. Wherever a method's name is accepted, so is a `Method` of your own.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from onefold.ensemble import BatchEnsemble, Plain, batch_ensemble, collapse
from onefold.metrics import log_mean_probabilities
from onefold.names import METHOD_NEEDS, PERTURBATION_NEEDS, misfit, named
from onefold.objectives import aekd, cross_entropy, dirichlet_mean, kd, one_to_one, proxy_end2
from onefold.perturb import confods, gaussian, none, ods, tdiv, tdiv_sdiv
from onefold.signatures import check_function, name_of, signature_of, taken
from onefold.types import Ensemble, Prediction

AnyStudent = BatchEnsemble | Plain
Entry = TypeVar("Entry", "Method", "Perturbing")
COMPARED, PERTURBED = ("student", "teachers", "labels"), ("x", "teachers", "student")  # in this order
HYPERPARAMETERS = ("alpha", "temperature", "cap", "label_smoothing")  # passed by name to whatever accepts them
PASSED = (*HYPERPARAMETERS, "space", "draws")  # likewise, to perturbations


def plain(net: nn.Module, members: int, example: Tensor | None = None) -> Plain:  # noqa: ARG001
    """The network itself, whatever the number of teachers."""
    return Plain(net)


def be(net: nn.Module, members: int, example: Tensor | None = None) -> BatchEnsemble:
    """A batch ensemble with factors from N(1, 0.5^2)."""
    return batch_ensemble(net, members, "normal", example=example)


def latent_be(net: nn.Module, members: int, example: Tensor | None = None) -> BatchEnsemble:
    """A batch ensemble whose factors start at one and decay toward one."""
    return batch_ensemble(net, members, "ones", example=example)


def as_it_is(student: AnyStudent) -> Ensemble:
    """Serves all members: M forward passes."""
    return student.at_rest


def averaged(student: AnyStudent) -> Ensemble:
    """Serves one network with the mean of the members' weights: one forward pass."""
    return Plain(collapse(student)).eval()


@dataclass(frozen=True)
class Method:
    """What distinguishes one method from another.

    student: builds the student from a network, the number of teachers and an example batch.
    objective: a function of student logits, teacher logits and labels; further keywords are hyperparameters.
    serve: turns the trained student into what is evaluated and deployed.
    predict: combines that model's logits into one prediction.
    needs_teachers: whether the objective uses teacher logits.
    has_members: detected by building a student from a tiny network; the value given counts only where that fails.
    """

    name: str
    student: Callable[[nn.Module, int, Tensor | None], AnyStudent]
    objective: Callable[..., Tensor]
    serve: Callable[[AnyStudent], Ensemble] = as_it_is
    predict: Prediction = log_mean_probabilities
    needs_teachers: bool = True
    has_members: bool = True  # the fallback if detection fails: TDiv-SDiv itself refuses a plain student later

    def __post_init__(self) -> None:
        check_function("objective", self.objective, COMPARED, HYPERPARAMETERS)
        with contextlib.suppress(Exception):  # `student` may support only certain networks and raise anything here
            object.__setattr__(self, "has_members", tiny(self, 2).members > 1)


@dataclass(frozen=True)
class Perturbing:
    """A perturbation and what it needs: a minimum number of teachers, and whether the student must have members."""

    name: str
    perturb: Callable[..., Tensor]
    teachers: int = 0
    needs_members: bool = False
    passes: tuple[int, int, int, int] = (0, 0, 0, 0)
    """passes to find the direction: teachers forward, teachers backward to the input, then the same for members"""

    def __post_init__(self) -> None:
        check_function("perturb", self.perturb, PERTURBED, PASSED)


def shipped(name: str, student: Callable[..., AnyStudent], objective: Callable[..., Tensor], **more: Any) -> Method:
    """A built-in method; its name and needs come from `names.py`."""
    return Method(**vars(METHOD_NEEDS[name]), student=student, objective=objective, **more)


def shipped_perturbation(name: str, perturb: Callable[..., Tensor], **more: Any) -> Perturbing:
    """A built-in perturbation, likewise."""
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
    """The method's student for a tiny network, to see what kind it is; leaves the random state alone."""
    with torch.random.fork_rng(devices=[]):
        return method.student(nn.Linear(2, 2), members, torch.zeros(2, 2))


def method_named(method: str | Method) -> Method:
    if isinstance(method, Method):
        return with_its_own_name("method", method, METHODS)
    if not isinstance(method, str):
        raise ValueError(
            f"method: expected a name or a Method, got {type(method).__name__}; there are {', '.join(METHODS)}, and an "
            "objective of your own goes into a Method(name=..., student=..., objective=...)"
        )
    return named("method", method, METHODS)


def perturbation_named(perturbation: str | Perturbing | Callable[..., Tensor]) -> Perturbing:
    """The perturbation of that name, or a function of one's own as a `Perturbing` with the function's name."""
    if isinstance(perturbation, str):
        return named("perturbation", perturbation, PERTURBATIONS)
    for entry in PERTURBATIONS.values():
        if perturbation is entry.perturb:
            return entry
    if not isinstance(perturbation, Perturbing):
        check_function("perturbation", perturbation, PERTURBED, PASSED)
        perturbation = Perturbing(name_of(perturbation), perturbation)
    return with_its_own_name("perturbation", perturbation, PERTURBATIONS)


def with_its_own_name(what: str, given: Entry, shipped: Mapping[str, Entry]) -> Entry:
    """Refuses a changed method under the name of the original: folders and reports know it by that name."""
    if given != shipped.get(given.name, given):
        raise ValueError(
            f"{what}: '{given.name}' is the name of one that comes with onefold, and this is another one; give it a "
            "name of its own: dataclasses.replace(..., name=...)"
        )
    return given


def own_perturbation(method: Method, teachers: int) -> Perturbing:
    """A method's default perturbation: TDiv-SDiv, or none where that does not fit."""
    paper = PERTURBATIONS["tdiv-sdiv"]
    return paper if misfit(method, paper, teachers) is None else PERTURBATIONS["none"]


def with_hyperparameters(function: Callable[..., Tensor], **hyperparameters: Any) -> Callable[..., Tensor]:
    """Binds those hyperparameters that the function accepts, and ignores the rest."""
    return functools.partial(function, **{k: hyperparameters[k] for k in taken(function, hyperparameters)})


def is_taken(method: Method, perturbation: Perturbing, name: str) -> bool:
    """Whether the objective or the perturbation accepts a hyperparameter. Its name may have a prefix, as that of
    "distill.cap"."""
    names = [name.rpartition(".")[2]]
    return bool(taken(method.objective, names) or taken(perturbation.perturb, names))


def check_taken(method: Method, perturbation: Perturbing, chosen: Mapping[str, object]) -> None:
    """Refuses hyperparameters that a user chose and that neither the objective nor the perturbation accepts."""
    for name, value in chosen.items():
        if is_taken(method, perturbation, name):
            continue
        signature = signature_of(method.objective)
        own = [] if signature is None else [*signature.parameters][len(COMPARED) :]
        if METHODS.get(method.name) is method:  # others of its parameters cannot be chosen
            own = taken(method.objective, HYPERPARAMETERS)
        raise ValueError(
            f"{name}: expected none, because neither the method '{method.name}' nor the perturbation "
            f"'{perturbation.name}' takes it, got {value}; '{method.name}' takes {', '.join(own) or 'none'}"
        )
