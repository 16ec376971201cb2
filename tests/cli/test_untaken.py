"""Hyperparameters that a student's method does not take."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from onefold.cli import main
from onefold.cli.proposal import chosen
from onefold.recipes import RECIPES, recipe_named

Refused = Callable[[Sequence[str]], str]
QUICK = ["--network", "mlp", "--epochs", "1", "--optim.warmup-epochs", "0", "--recipe.members", "2"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--distill.cap", "0.7"], "distill.cap: expected none, because neither the method 'latentbe' nor the perturb"),
        (
            ["--distill.method", "proxy-end2", "--distill.perturbation", "none", "--distill.alpha", "0.5"],
            "distill.alpha",
        ),
    ],
)
def test_what_the_method_does_not_take_is_refused(words: list[str], told: str, refused: Refused) -> None:
    sentence = refused(["distill", "digits", "--teachers", "no/where", *words])
    assert sentence.startswith(told)


def test_what_a_recipe_sets_is_for_all_methods(refused: Refused) -> None:
    """Only what was changed is refused: a recipe's alpha does not matter to Proxy-EnD2."""
    assert recipe_named("tiny-imagenet-r18").distill.alpha != 1
    words = ["--distill.method", "proxy-end2", "--distill.perturbation", "none", "--distill.alpha", "0.9"]
    assert refused(["distill", "tiny-imagenet-r18", "--teachers", "no/where", *words]).startswith(
        "--teachers: there is"
    )
    for name in RECIPES:
        assert chosen(name, recipe_named(name)) == {}


def test_teachers_have_the_flags_of_their_student(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And the command that is proposed leaves out what the student does not take."""
    words = [*QUICK, "--distill.cap", "0.7", "--distill.alpha", "0.5", "--optim.label-smoothing", "0.1"]
    assert main(["train", "digits", *words, "--out", str(tmp_path / "teachers")]) == 0
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("next: ")]
    assert "--distill.alpha 0.5" in line
    assert "--distill.cap" not in line
    assert main(shlex.split(line)[2:]) == 0
