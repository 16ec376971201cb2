"""What --help says of a flag: its text in one piece, and no default where there is none."""

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
    """Prints the help of a request and ends with SystemExit."""
    registry = ConstructorRegistry()
    registry.struct_rule(described)
    # A flag that takes None understands the word; only the help does without.
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
    """tyro's own reading of a dataclass keeps the line breaks of its texts, and tells that the default is None."""
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
    """The text behind each field of a dataclass, in one line."""
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__[:-1]):
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(each))).body
        assert isinstance(tree, ast.ClassDef)
        for field, text in itertools.pairwise(tree.body):
            match field, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(words))):
                    found[name] = " ".join(words.split())
    return found
