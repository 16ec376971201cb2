"""Turns the words of the command line into a request, or reports in one sentence what is wrong with them."""

from __future__ import annotations

import contextlib
import difflib
import io
import sys
from collections.abc import Sequence
from typing import Any, get_args

import tyro

from onefold.cli.flags import Flag, accepts, expected, flags_of, required_of
from onefold.cli.help import show_help
from onefold.cli.requests import (
    EXAMPLES,
    VERBS,
    Distill,
    Evaluate,
    Plan,
    Report,
    Reproduce,
    Request,
    Tables,
    Train,
    as_fields,
    recipe_asked,
)
from onefold.recipes import RECIPES, recipe_named
from onefold.terminal import fitted

HELP = ("-h", "--help")


def parse(words: Sequence[str]) -> Request:
    """The request, or a ValueError that says what to write instead; --help prints help and raises SystemExit."""
    verb, *rest = words
    if verb not in VERBS:
        near = difflib.get_close_matches(verb, VERBS, n=1)
        offer = f"did you mean '{near[0]}'?" if near else f"the verbs are {', '.join(VERBS)}"
        raise ValueError(f"there is no verb '{verb}'; {offer}")
    kind = VERBS[verb]
    if any(word in HELP for word in rest):
        named = next((word for word in rest if word in RECIPES), None)
        show_help(kind, f"onefold {verb}", fitted(description(kind, named), sys.stdout), base(kind, named))
    request = understood(kind, rest, None)
    if isinstance(request, Train | Distill | Plan):
        if request.recipe not in RECIPES and is_source(request.recipe):
            raise ValueError(
                f"recipe: expected a recipe's name, got the data source '{request.recipe}'; give it to any recipe: "
                f"onefold {verb} cifar10 --data.source {request.recipe}"
            )
        # Now the recipe is known, parse again with its values as the defaults of the flags.
        request = understood(kind, rest, request.recipe)
        assert isinstance(request, Train | Distill | Plan)
        recipe_asked(request)  # refuses bad values before anything slow is loaded
        return request
    if isinstance(request, Evaluate | Report) and not request.runs:
        raise ValueError(needed(kind, rest))
    return request


def is_source(word: str) -> bool:
    """Whether a word looks like a data source instead of a recipe's name."""
    return word.startswith(("npz:", "folder:", "hf:"))


def understood(kind: type[Request], words: Sequence[str], recipe: str | None) -> Request:
    """Parses the words with tyro, replacing tyro's error messages by our own."""
    default = base(kind, recipe)
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            request, unknown = tyro.cli(
                kind, args=list(words), default=default, return_unknown_args=True, console_outputs=False
            )
    except SystemExit:
        raise ValueError(diagnosis(kind, words)) from None
    if unknown:
        raise ValueError(unknown_word(unknown[0], kind, words))
    return request


def base(kind: type[Request], recipe: str | None) -> Request:
    """The request before any flags: the defaults, and the fields of the recipe if one is named."""
    missing: dict[str, Any] = dict.fromkeys(required_of(kind), tyro.MISSING)
    if recipe is not None:
        missing["fields"] = as_fields(recipe_named(recipe))
    return kind(**missing)


def description(kind: type[Request], recipe: str | None) -> str:
    examples = "\n".join(f"  {example}" for example in EXAMPLES[kind])
    text = f"{kind.__doc__}\n\nExamples:\n{examples}\n\nWith --debug, errors show their traceback."
    if kind in (Train, Distill, Plan) and recipe is None:
        first, other = list(RECIPES)[:2]
        verb = kind.__name__.lower()
        text += f" Defaults are those of {first}; 'onefold {verb} {other} --help' shows those of {other}."
    return text


def diagnosis(kind: type[Request], words: Sequence[str]) -> str:
    """Why tyro could not read the words."""
    flags = flags_of(kind)
    for index, word in enumerate(words):
        if not word.startswith("--"):
            continue
        name, given, value = word.partition("=")
        flag = flags.get(name.replace("_", "-"))
        if flag is None:
            return unknown_word(word, kind, words)
        if flag.takes_value and not given:
            value = words[index + 1] if index + 1 < len(words) else "--"
        if flag.takes_value and not accepts(flag.type, value):
            got = "nothing" if value.startswith("--") else f"'{value}'"
            return f"{name}: expected {expected(flag.type)}, got {got}"
    return needed(kind, words)


def needed(kind: type[Request], words: Sequence[str]) -> str:
    """The message about a required argument that is missing."""
    verb = kind.__name__.lower()
    given = {word.partition("=")[0] for word in words}
    flags = flags_of(kind)
    for name in required_of(kind):
        if f"--{name}" in flags and f"--{name}" not in given:
            return f"{verb} needs --{name}; for example: {EXAMPLES[kind][0]}"
    if kind in (Train, Distill, Plan):
        return f"{verb} needs a recipe, one of {', '.join(RECIPES)}; for example: {EXAMPLES[kind][0]}"
    if kind is Reproduce:
        return (
            f"{verb} needs a table of the paper, one of {', '.join(get_args(Tables))}; for example: {EXAMPLES[kind][0]}"
        )
    return f"{verb} needs a run folder; for example: {EXAMPLES[kind][0]}"


def unknown_word(word: str, kind: type[Request], words: Sequence[str]) -> str:
    """An error message that suggests the closest known flag."""
    verb = kind.__name__.lower()
    flags = flags_of(kind)
    if not word.startswith("-"):
        before = words[list(words).index(word) - 1] if word in words[1:] else ""
        flag = flags.get(before.replace("_", "-"))
        if flag is not None and not flag.takes_value:
            return f"{before} takes no value, got '{word}'; to turn it off, write {switched_off(flag)}"
        return f"unexpected argument '{word}'; 'onefold {verb} --help' shows what is accepted"
    name = word.partition("=")[0].replace("_", "-")
    group = [flag for flag in flags if flag.startswith(f"{name}.") and not flag.startswith(f"{name}.no-")]
    if group:
        return f"there is no flag {name}; use one of {', '.join(group)}"
    return f"there is no flag {name}; " + (
        f"did you mean {near}?" if (near := nearest(name, flags)) else f"'onefold {verb} --help' shows all flags"
    )


def nearest(name: str, flags: dict[str, Flag]) -> str | None:
    """The flag that was probably meant: one that ends in this name, or one that is spelled similarly."""
    ending = [flag for flag in flags if flag.endswith("." + name.lstrip("-"))]
    near = ending or difflib.get_close_matches(name, flags, n=1)
    if not near:  # a field without its group
        last = {flag.rpartition(".")[2]: flag for flag in flags}
        near = [last[part] for part in difflib.get_close_matches(name.lstrip("-"), last, n=1)]
    return near[0] if near else None


def switched_off(flag: Flag) -> str:
    group, dot, name = flag.name.removeprefix("--").rpartition(".")
    return f"--{group}{dot}no-{name}"
