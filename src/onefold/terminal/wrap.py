"""Wraps lines to the width of a terminal. If there is none, lines stay whole, for programs that read them."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Sequence
from typing import TextIO

from rich.console import Console

FIRST_COLUMN = re.compile(r"\s*\S+(?: \S+)*  +(?=\S)")  # the first of two columns, separated by two or more spaces
ITEM = re.compile(r" +(?=\S)")
COMMAND = re.compile(r" +onefold (?!.*  ).*")  # in a list, without a remark after it
CONTINUED = " \\"
DEEPER = 2  # additional indent of continuation lines in a list


def columns_of(stream: TextIO | None) -> int | None:
    """The width of the terminal that a stream goes to; None if it goes elsewhere."""
    return Console(file=stream).width if stream is not None and stream.isatty() else None


def fitted(text: str, stream: TextIO | None) -> str:
    """The text, wrapped if the stream goes to a terminal."""
    width = columns_of(stream)
    return text if width is None else wrapped(text, width)


def wrapped(text: str, width: int) -> str:
    """Wraps every line to at most `width` columns; a longer word, such as a path, stays whole."""
    return "\n".join(part for line in text.split("\n") for part in parts(line, width))


def parts(line: str, width: int) -> list[str]:
    if len(line) <= width or not line.strip():
        return [line]
    indent, ending = " " * hanging(line, width), CONTINUED if COMMAND.fullmatch(line) else ""
    broken = textwrap.wrap(
        line, width - len(ending), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return [*(part + ending for part in broken[:-1]), broken[-1]]


def hanging(line: str, width: int) -> int:
    """The indent of continuation lines: under the second of two columns, or within a list item."""
    column = FIRST_COLUMN.match(line)
    if column is not None and column.end() <= width // 2:
        return column.end()
    item = ITEM.match(line)
    return 0 if item is None else item.end() + DEEPER


def command(words: Sequence[str], width: int | None, before: str = "") -> str:
    """A command to copy, on one line or on several that end in a backslash."""
    quoted = [shlex.quote(word) for word in words]
    whole = before + " ".join(quoted)
    if width is None or len(whole) <= width:
        return whole
    indent, lines = " " * (len(before) + DEEPER), [before + quoted[0]]
    for word in quoted[1:]:
        longer = f"{lines[-1]} {word}"
        if len(longer) + len(CONTINUED) <= width:
            lines[-1] = longer
        else:
            lines.append(indent + word)
    return f"{CONTINUED}\n".join(lines)
