"""What the command line understands, and its help."""

from __future__ import annotations

import importlib.metadata

import pytest

from onefold.cli import main, run_train
from onefold.cli.arguments import parse
from onefold.cli.flags import flags_of
from onefold.cli.requests import EXAMPLES, VERBS, Distill, Evaluate, Plan, Report, Train
from onefold.recipe import leaves
from onefold.recipes import RECIPES, recipe_named

Capture = pytest.CaptureFixture[str]


def test_flags_change_the_recipe() -> None:
    request = parse(["train", "cifar10", "--optim.lr", "0.05", "--data.no-augment", "--optim.clip", "2", "--seed=3"])
    assert isinstance(request, Train)
    recipe = request.fields.checked()
    changed = {name: value for name, value in leaves(recipe).items() if value != leaves(recipe_named("cifar10"))[name]}
    assert changed == {"optim.lr": 0.05, "data.augment": False, "optim.clip": 2.0, "seed": 3}


@pytest.mark.parametrize("name", RECIPES)
def test_without_flags_a_recipe_is_what_its_function_returns(name: str) -> None:
    request = parse(["train", name])
    assert isinstance(request, Train)
    assert request.fields.checked() == recipe_named(name)


def test_the_recipe_may_stand_behind_its_flags() -> None:
    assert parse(["train", "--epochs", "9", "imagenet"]) == parse(["train", "imagenet", "--epochs", "9"])


def test_which_teachers_and_how_many_are_two_flags() -> None:
    request = parse(["train", "cifar10", "--members", "2,3", "--recipe.members", "8"])
    assert isinstance(request, Train)
    assert (request.members, request.fields.checked().members) == ("2,3", 8)
    assert run_train.members_of("2,3", 8) == [2, 3]


def test_every_field_of_the_recipe_is_a_flag() -> None:
    for kind in (Train, Distill, Plan):
        flags = flags_of(kind)
        for name in leaves(recipe_named("cifar10")):
            flag = "--recipe.members" if name == "members" else "--" + name.replace("_", "-")
            assert flag in flags


def test_underscores_are_dashes() -> None:
    request = parse(["train", "cifar10", "--optim.batch_size", "64"])
    assert isinstance(request, Train)
    assert request.fields.optim.batch_size == 64


def test_several_runs() -> None:
    assert parse(["evaluate", "a", "b"]) == Evaluate(("a", "b"))
    assert parse(["report", "a", "b", "--out", "x.html"]) == Report(("a", "b"), "x.html")


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_every_verb_has_an_example(verb: str, capsys: Capture) -> None:
    assert main([verb, "--help"]) == 0
    told = capsys.readouterr().out
    for example in EXAMPLES[VERBS[verb]]:
        assert example.split("  ")[0].strip() in told
    assert "--out" in told or verb == "evaluate"


def test_help_of_a_recipe_shows_its_settings(capsys: Capture) -> None:
    assert main(["train", "tiny-imagenet-r18", "--help"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "resnet18-small)" in told
    assert "tau (default: 20.0)" in told


def test_help_and_no_words_at_all(capsys: Capture) -> None:
    assert main(["--help"]) == 0
    told = capsys.readouterr().out
    assert all(verb in told for verb in VERBS)
    assert main([]) == 2


def test_help_as_a_word(capsys: Capture) -> None:
    for words, same in (
        (["help"], ["--help"]),
        (["help", "plan"], ["plan", "--help"]),
        (["help", "plan", "imagenet"], ["plan", "imagenet", "--help"]),
    ):
        assert main(words) == main(same) == 0
        told = capsys.readouterr().out
        assert told[: len(told) // 2] == told[len(told) // 2 :]


def test_the_version(capsys: Capture) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"onefold {importlib.metadata.version('onefold')}\n"


def test_a_copy_that_is_not_installed_has_no_version(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    def nowhere(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", nowhere)
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == "onefold (not installed)\n"
