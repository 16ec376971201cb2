"""The flags of a request and the values they take, derived from its fields; used for error messages."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from tyro.conf import Positional

WORDS = {int: "a whole number", float: "a number", str: "text"}


@dataclass(frozen=True)
class Flag:
    """A flag, with its leading dashes, and the type of its value."""

    name: str
    type: Any

    @property
    def takes_value(self) -> bool:
        return self.type is not bool


def flags_of(kind: type, prefix: str = "") -> dict[str, Flag]:
    """Every flag of a dataclass and of nested ones, by name; a switch has two, --name and --no-name."""
    found: dict[str, Flag] = {}
    for name, hint in hints(kind).items():
        if positional(hint):
            continue
        shown, type_ = own_name(hint, name), bare(hint)
        if isinstance(type_, type) and dataclasses.is_dataclass(type_):
            found |= flags_of(type_, f"{prefix}{shown}." if shown else prefix)
            continue
        names = [f"--{prefix}{shown}"] + ([f"--{prefix}no-{shown}"] if type_ is bool else [])
        found |= {(flag := each.replace("_", "-")): Flag(flag, type_) for each in names}
    return found


def required_of(kind: type) -> list[str]:
    """Fields without a default."""
    missing = dataclasses.MISSING
    entries = dataclasses.fields(kind)
    return [e.name for e in entries if e.default is missing and e.default_factory is missing]


def hints(kind: type) -> dict[str, Any]:
    known = get_type_hints(kind, include_extras=True)
    return {entry.name: known[entry.name] for entry in dataclasses.fields(kind)}


def positional(hint: Any) -> bool:
    return get_origin(hint) is Annotated and Positional in get_args(hint)


def own_name(hint: Any, name: str) -> str:
    """The name that a field's annotation gives it, else its own."""
    for extra in get_args(hint)[1:] if get_origin(hint) is Annotated else ():
        given = getattr(extra, "name", None)
        if isinstance(given, str):
            return given
    return name


def bare(hint: Any) -> Any:
    """The type without its annotations."""
    return bare(get_args(hint)[0]) if get_origin(hint) is Annotated else hint


def alternatives(type_: Any) -> list[Any]:
    return list(get_args(type_)) if get_origin(type_) in (UnionType, Union) else [type_]


def accepts(type_: Any, word: str) -> bool:
    """Whether a word can be parsed as a value of a type."""
    for each in alternatives(type_):
        if each is NoneType:
            fits = word == "None"
        elif get_origin(each) is Literal:
            fits = word in get_args(each)
        elif each in (int, float):
            fits = readable(each, word)
        else:
            fits = not word.startswith("--")
        if fits:
            return True
    return False


def readable(type_: type[int] | type[float], word: str) -> bool:
    try:
        type_(word)
    except ValueError:
        return False
    return True


def expected(type_: Any) -> str:
    """What a flag takes, in words."""
    parts = []
    for each in alternatives(type_):
        if get_origin(each) is Literal:
            parts += [str(value) for value in get_args(each)]
        else:
            parts.append("None" if each is NoneType else WORDS.get(each, "text"))
    return " or ".join([*([", ".join(parts[:-1])] if parts[:-1] else []), *parts[-1:]])
