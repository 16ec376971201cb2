"""The names of methods and perturbations and what they need: all that a recipe has to know about them.

The functions behind the names are in `methods.py` and need torch, which takes seconds to load. This module does not
import it, so that recipes, help and error messages are instant.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar

Entry = TypeVar("Entry")


class AnyMethod(Protocol):
    """A method, or its entry in the table below: whether it needs teachers, and whether its student has members."""

    @property
    def name(self) -> str: ...
    @property
    def needs_teachers(self) -> bool: ...
    @property
    def has_members(self) -> bool: ...


class AnyPerturbation(Protocol):
    """A perturbation, likewise: how many teachers it needs at least, and whether it needs a student with members."""

    @property
    def name(self) -> str: ...
    @property
    def teachers(self) -> int: ...
    @property
    def needs_members(self) -> bool: ...


@dataclass(frozen=True)
class MethodNeeds:
    name: str
    needs_teachers: bool = True
    has_members: bool = False


@dataclass(frozen=True)
class PerturbationNeeds:
    name: str
    teachers: int = 0
    needs_members: bool = False


METHOD_NEEDS = {
    needs.name: needs
    for needs in (
        MethodNeeds("supervised", needs_teachers=False),
        MethodNeeds("kd"),
        MethodNeeds("aekd"),
        MethodNeeds("proxy-end2"),
        MethodNeeds("be", has_members=True),
        MethodNeeds("latentbe", has_members=True),
    )
}

PERTURBATION_NEEDS = {
    needs.name: needs
    for needs in (
        PerturbationNeeds("none"),
        PerturbationNeeds("gaussian"),
        PerturbationNeeds("ods", teachers=1),
        PerturbationNeeds("confods", teachers=1),
        PerturbationNeeds("tdiv", teachers=2),
        PerturbationNeeds("tdiv-sdiv", teachers=2, needs_members=True),
    )
}


def method_needs(name: str) -> MethodNeeds:
    return named("method", name, METHOD_NEEDS)


def perturbation_needs(name: str) -> PerturbationNeeds:
    return named("perturbation", name, PERTURBATION_NEEDS)


def misfit(method: AnyMethod, perturbation: AnyPerturbation, members: int) -> str | None:
    """Why a perturbation does not fit the method and the number of teachers; None if it does."""
    if perturbation.teachers and not method.needs_teachers:
        return f"'{perturbation.name}' needs teachers, and '{method.name}' has none; use 'none' or 'gaussian'"
    if perturbation.needs_members and not method.has_members:
        return (
            f"'{perturbation.name}' needs a student with members, and '{method.name}' trains a plain "
            "network; use --distill.perturbation none (perturbation='none' in Python), 'tdiv', which uses only the "
            "teachers, or the method 'latentbe'"
        )
    if method.needs_teachers and members < perturbation.teachers:
        return (
            f"'{perturbation.name}' needs at least {perturbation.teachers} teachers, got {members}; "
            "use --distill.perturbation none (perturbation='none' in Python), or train more teachers"
        )
    return None


def check_pair(method: AnyMethod, perturbation: AnyPerturbation, members: int) -> None:
    """Refuses a perturbation that does not fit the method."""
    if (reason := misfit(method, perturbation, members)) is not None:
        raise ValueError(f"perturbation: {reason}")


def named(what: str, name: str, table: dict[str, Entry]) -> Entry:
    if name not in table:
        raise ValueError(f"{what}: {unknown(name, table)}")
    return table[name]


def unknown(name: str, known: Iterable[str]) -> str:
    """An error message that suggests the closest known name."""
    known = list(known)
    near = difflib.get_close_matches(name, known, n=1)
    return f"there is no '{name}'" + (f"; did you mean '{near[0]}'?" if near else f"; choose one of {', '.join(known)}")
