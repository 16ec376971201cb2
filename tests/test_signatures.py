"""What functions of one's own are given, and what is refused because none of them takes it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from onefold import distill
from onefold.methods import METHODS, PERTURBATIONS, Method, Perturbing, method_named, perturbation_named, plain
from onefold.objectives import kd
from onefold.perturb import InputSpace, confods, gaussian, none, ods, tdiv, tdiv_sdiv
from onefold.perturb.draws import Draws
from onefold.signatures import check_function, name_of

X, Y = torch.rand(24, 4), torch.arange(24) % 3


def short(method: Any = "kd", perturbation: Any = "none", **given: Any) -> Any:
    torch.manual_seed(0)
    nets = [nn.Linear(4, 3) for _ in range(3)]
    teachers = None if method == "supervised" else nets[:2]
    few: dict[str, Any] = {"epochs": 1, "batch_size": 8, "workers": 0, "device": "cpu"}
    return distill(teachers, nets[2], (X, Y), method=method, perturbation=perturbation, **(few | given))


def own(objective: Callable[..., Tensor]) -> Method:
    return Method("mine", plain, objective)


def with_tau(student: Tensor, teachers: Tensor, labels: Tensor, tau: float = 4.0) -> Tensor:
    return kd(student, teachers, labels, temperature=tau)


@pytest.mark.parametrize(
    ("method", "given", "takes"),
    [
        ("kd", {"cap": 0.5}, "alpha, temperature"),
        ("aekd", {"label_smoothing": 0.1}, "alpha, temperature, cap"),
        ("proxy-end2", {"alpha": 0.5}, "temperature"),
        ("latentbe", {"label_smoothing": 0.1}, "alpha, temperature"),
        (own(with_tau), {"temperature": 2.0}, "tau"),
        (own(lambda s, t, y: kd(s, t, y)), {"alpha": 0.5}, "none"),
    ],
)
def test_what_neither_objective_nor_perturbation_takes_is_refused(method: Any, given: Any, takes: str) -> None:
    (name,) = given
    shown = method if isinstance(method, str) else "mine"
    with pytest.raises(
        ValueError,
        match=f"^{name}: expected none, .* method '{shown}' nor the perturbation 'none' takes it, got {given[name]}; "
        f"'{shown}' takes {takes}$",
    ):
        short(method, **given)
    short(method, alpha=1.0, temperature=4, cap=0.6, label_smoothing=0)  # the defaults, said


def test_what_the_perturbation_takes_is_not_refused() -> None:
    assert short(own(with_tau), "ods", temperature=2.0).model is not None


def test_a_function_with_any_keywords_gets_them_all() -> None:
    seen: dict[str, dict[str, Any]] = {}

    def objective(student: Tensor, teachers: Tensor, labels: Tensor, **others: Any) -> Tensor:
        seen["objective"] = others
        return kd(student, teachers, labels, temperature=others["temperature"])

    def perturb(x: Tensor, teachers: Any, student: Any, **others: Any) -> Tensor:  # noqa: ARG001
        seen["perturb"] = others
        return x

    chosen = {"alpha": 0.5, "temperature": 3.0, "cap": 0.7, "label_smoothing": 0.2}
    short(own(objective), Perturbing("moved", perturb), **chosen)
    assert seen["objective"] == chosen
    space, draws = seen["perturb"].pop("space"), seen["perturb"].pop("draws")
    assert (seen["perturb"], isinstance(space, InputSpace), isinstance(draws, Draws)) == (chosen, True, True)


class Module(nn.Module):
    """An objective as a module: what counts is its forward, and not that modules can be called with anything."""

    def __init__(self) -> None:
        super().__init__()

    def forward(self, student: Tensor, teachers: Tensor, labels: Tensor, temperature: float) -> Tensor:
        return kd(student, teachers, labels, temperature=temperature)


def test_modules_and_partial_functions_are_functions() -> None:
    expected = short("kd", temperature=2.0).model.weight
    for objective in (Module(), functools.partial(Module()), functools.partial(kd, reduction="mean")):
        assert torch.equal(short(own(objective), temperature=2.0).model.weight, expected)
    check_function("this", torch.max, ("a",), ())  # has no signature


def moved(x: Tensor, teachers: Any, student: Any) -> Tensor:  # noqa: ARG001
    return x + 0.01


def test_a_perturbation_may_be_a_function() -> None:
    functions: list[Callable[..., Tensor]] = [none, gaussian, ods, confods, tdiv, tdiv_sdiv]
    for name, function in zip(PERTURBATIONS, functions, strict=True):
        assert perturbation_named(function) is PERTURBATIONS[name]
    assert perturbation_named(moved) == Perturbing("moved", moved)
    bound = functools.partial(gaussian, space=InputSpace(0.1))
    assert name_of(bound) == "gaussian"
    with pytest.raises(ValueError, match="perturbation: 'gaussian' is the name of one that comes with onefold"):
        perturbation_named(bound)
    expected = short(perturbation=Perturbing("moved", moved)).model.weight
    assert torch.equal(short(perturbation=moved).model.weight, expected)
    assert not torch.equal(short().model.weight, expected)
    with pytest.raises(ValueError, match="'tdiv-sdiv' needs a student with members"):
        short(perturbation=tdiv_sdiv)


@pytest.mark.parametrize(
    ("perturbation", "match"),
    [
        (nn.Dropout(), r"got Dropout\(input\): too many positional arguments"),
        (nn.Dropout, "got Dropout"),
        (lambda x: x, r"<lambda>\(x\): too many"),
        (lambda x, teachers, student, step: x, "missing a required argument: 'step'"),  # noqa: ARG005
        (3, "got int$"),
    ],
)
def test_a_perturbation_is_a_function_of_three(perturbation: Any, match: str) -> None:
    with pytest.raises(ValueError, match=f"^perturbation: expected a function of x, teachers and student, .*{match}"):
        short(perturbation=perturbation)
    with pytest.raises(ValueError, match=f"^perturb: expected a function of x, teachers and student, .*{match}"):
        Perturbing("mine", perturbation)


@pytest.mark.parametrize(
    ("objective", "match"),
    [
        (nn.CrossEntropyLoss(), r"got CrossEntropyLoss\(input, target\): too many positional arguments"),
        (lambda student, teachers: student, r"<lambda>\(student, teachers\): too many"),  # noqa: ARG005
        (lambda s, t, y, weight: s, "missing a required argument: 'weight'"),  # noqa: ARG005
        ("kd", "got str$"),
    ],
)
def test_an_objective_is_a_function_of_three(objective: Any, match: str) -> None:
    with pytest.raises(ValueError, match=f"^objective: expected a function of student, teachers and labels, .*{match}"):
        own(objective)


def test_a_method_is_a_name_or_a_method() -> None:
    for given in (nn.CrossEntropyLoss(), kd, 3, None):
        with pytest.raises(
            ValueError, match=r"^method: expected a name or a Method, got \w+; there are supervised, kd"
        ):
            short(given)
    assert method_named(METHODS["kd"]) is method_named("kd")


def test_settings_of_distillation_are_no_mistake_beside_supervised() -> None:
    """Teachers and their student are often given the same dictionary of settings."""
    short("supervised", temperature=2.0, alpha=0.5, cap=0.7)
