"""The --help of a request: rewraps the text of each flag, and shows no default where it is None."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import textwrap
from typing import Annotated, Any

import tyro
from tyro.conf import DisallowNone, arg
from tyro.constructors import ConstructorRegistry, StructConstructorSpec, StructFieldSpec, StructTypeInfo

from onefold.cli.flags import hints


def show_help(kind: type, prog: str, description: str, default: object) -> None:
    """Prints the help of a request and raises SystemExit."""
    registry = ConstructorRegistry()
    registry.struct_rule(described)
    # DisallowNone applies to the help only: when parsing, flags that may be None do accept the word.
    tyro.cli(
        kind,
        prog=prog,
        description=description,
        args=["--help"],
        default=default,
        registry=registry,
        config=(DisallowNone,),
    )


def described(info: StructTypeInfo) -> StructConstructorSpec | None:
    """Replaces tyro's own rule for dataclasses, which keeps the line breaks of docstrings and shows "default: None"."""
    if not dataclasses.is_dataclass(info.type):
        return None
    texts = texts_of(info.type)
    fields = []
    for name, hint in hints(info.type).items():
        default: Any = getattr(info.default, name)
        shown = Annotated[hint, arg(help_behavior_hint="")] if default is None else hint
        fields.append(StructFieldSpec(name, shown, default, texts.get(name)))  # type: ignore[arg-type]
    return StructConstructorSpec(info.type, tuple(fields))


def texts_of(kind: type) -> dict[str, str]:
    """The docstring below each field of a dataclass, as one line."""
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__[:-1]):
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(each))).body
        assert isinstance(tree, ast.ClassDef)
        for field, text in itertools.pairwise(tree.body):
            match field, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(words))):
                    found[name] = " ".join(words.split())
    return found
