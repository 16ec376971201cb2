"""Lines that fit a terminal, broken between words. Where there is none they stay whole: programs read them."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Sequence
from typing import TextIO

from rich.console import Console

FIRST_COLUMN = re.compile(r"\s*\S+(?: \S+)*  +(?=\S)")  # of two, which two spaces or more keep apart
ITEM = re.compile(r" +(?=\S)")
COMMAND = re.compile(r" +onefold (?!.*  ).*")  # in a list, with nothing said beside it
CONTINUED = " \\"
DEEPER = 2  # columns that a list's further lines stand behind its first ones


def columns_of(stream: TextIO | None) -> int | None:
    """Of the terminal that a stream goes to; None where it goes elsewhere."""
    return Console(file=stream).width if stream is not None and stream.isatty() else None


def fitted(text: str, stream: TextIO | None) -> str:
    """The text for where a stream goes."""
    width = columns_of(stream)
    return text if width is None else wrapped(text, width)


def wrapped(text: str, width: int) -> str:
    """Every line in lines of at most so many columns; a word that is longer, a path, stays whole."""
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
    """Where further lines begin: under the second of two columns, or within an item of a list."""
    column = FIRST_COLUMN.match(line)
    if column is not None and column.end() <= width // 2:
        return column.end()
    item = ITEM.match(line)
    return 0 if item is None else item.end() + DEEPER


def command(words: Sequence[str], width: int | None, before: str = "") -> str:
    """A command that can be copied: in lines that a shell takes for one, or in one line."""
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
