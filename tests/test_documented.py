"""What `help` says of the public names: every argument, and what it can be told."""

from __future__ import annotations

import inspect
import pydoc
import re
from collections.abc import Callable
from typing import Any

import pytest

import onefold
from onefold.methods import METHODS, PERTURBATIONS

DESCRIBED: list[Callable[..., Any]] = [
    onefold.Teachers,
    onefold.batch_ensemble,
    onefold.calibrated,
    onefold.collapse,
    onefold.distill,
    onefold.evaluate,
    onefold.load,
    onefold.subnetwork,
]


def documented(function: Callable[..., Any]) -> list[str]:
    """The arguments that a docstring explains, in its order; several may share an explanation."""
    _, _, section = (inspect.getdoc(function) or "").partition("\nArgs:\n")
    entries = re.findall(r"^ {4}(\w+(?:, \w+)*): \S", section, re.MULTILINE)
    return [name for entry in entries for name in entry.split(", ")]


@pytest.mark.parametrize("function", DESCRIBED, ids=lambda function: function.__name__)
def test_every_argument_is_explained_once(function: Callable[..., Any]) -> None:
    assert sorted(documented(function)) == sorted(inspect.signature(function).parameters)


def test_every_public_name_is_described() -> None:
    functions = {function.__name__ for function in DESCRIBED}
    assert functions == set(onefold.__all__) - {"InputSpace", "Method", "Result", "__version__"}
    for name in ("InputSpace", "Method", "Result"):  # whose fields their docstrings explain
        fields = [field for field in inspect.signature(getattr(onefold, name)).parameters if field != "name"]
        assert all(field in str(inspect.getdoc(getattr(onefold, name))) for field in fields)


def test_help_names_all_methods_and_perturbations() -> None:
    told = pydoc.plain(pydoc.render_doc(onefold.distill))
    assert [name for name in (*METHODS, *PERTURBATIONS) if f'"{name}"' not in told] == []


def test_what_is_not_explained_is_noticed() -> None:
    def half(x: int, y: int, z: int = 0) -> None:
        """Half of it.

        Args:
            x, y: both, with a
                word: that is none of them.
        """

    assert documented(half) == ["x", "y"]
    assert documented(len) == []
