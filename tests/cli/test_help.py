"""What --help prints."""

from __future__ import annotations

import itertools
import re

import pytest

from onefold.cli import main
from onefold.cli.arguments import parse
from onefold.cli.flags import flags_of
from onefold.cli.help import texts_of
from onefold.cli.requests import VERBS, Demo, Fields, Train
from onefold.recipe import OptimRecipe, Recipe

Capture = pytest.CaptureFixture[str]
WIDTH, SIDES = 80, 2  # columns of a box, and of its border and margin


def help_of(words: list[str], capsys: Capture) -> str:
    assert main([*words, "--help"]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("verb", VERBS)
def test_flags_that_may_be_left_out_say_nothing_of_none(verb: str, capsys: Capture) -> None:
    told = help_of([verb], capsys)
    assert "None" not in told
    for name in flags_of(VERBS[verb]):
        assert re.search(rf"{name}\b", told), name


@pytest.mark.parametrize("verb", VERBS)
def test_lines_are_as_long_as_the_box_allows(verb: str, capsys: Capture) -> None:
    """A line is broken where the next word has no room, and nowhere else."""
    lines = [line for line in help_of([verb], capsys).splitlines() if len(line) == WIDTH]
    assert len(lines) > 3
    for line, following in itertools.pairwise(lines):
        text, more = (each[SIDES:-SIDES].rstrip() for each in (line, following))
        both_in_one_text = text.startswith(" " * 8) and more.startswith(" " * 8)
        if both_in_one_text:
            assert len(text) + 1 + len(more.split()[0]) > WIDTH - 2 * SIDES, (text, more)


def test_defaults_that_are_there_are_told(capsys: Capture) -> None:
    told = " ".join(help_of(["train", "cifar10"], capsys).replace("│", " ").split())
    assert "share of the last step that goes on in the next, as Nesterov has it (default: 0.9)" in told
    assert "or FILE.py:NAME, a class or function of your own that makes a network (default: wrn28x1)" in told
    assert "--optim.clip FLOAT largest norm of the gradient --optim.accumulate" in told


def test_none_is_still_understood() -> None:
    """The command that `train` proposes has it where a flag takes a recipe's value away."""
    request = parse(["train", "imagenet", "--optim.clip", "None"])
    assert isinstance(request, Train)
    assert request.fields.optim.clip is None
    assert parse(["demo", "--workers", "None"]) == Demo()


@pytest.mark.parametrize("kind", [*VERBS.values(), OptimRecipe, Recipe])
def test_every_flag_has_a_text(kind: type) -> None:
    described = texts_of(kind)
    told_elsewhere = {"recipe", "run", "table", "fields", "data", "optim", "distill", "parallel"}
    assert {name for name in kind.__dataclass_fields__ if name not in described} <= told_elsewhere  # type: ignore[attr-defined]
    assert not any("\n" in text or "  " in text for text in described.values())


def test_texts_are_inherited() -> None:
    assert texts_of(Fields)["epochs"] == texts_of(Recipe)["epochs"] == "passes over the training images"
