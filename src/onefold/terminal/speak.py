"""Messages on stderr, besides the results; of several processes, only the first prints them."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence

from rich.console import Console

from onefold.terminal.wrap import columns_of, command, fitted

MANY = 10  # most messages of a kind
HUSHED: list[bool] = []  # not empty in all processes but the first


def hush() -> None:
    """Silences this process from here on."""
    HUSHED.append(True)


def hushed() -> bool:
    return bool(HUSHED)


class Speaker(Console):
    """Rich's console, except that it would exit the process on a broken pipe; this one raises an error."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def say(text: str) -> None:
    """Prints a message of one or more lines."""
    spoken(fitted(text, sys.stderr))


def say_first(sentences: Sequence[str], about: str) -> None:
    """Prints the first few of many messages, and how many more there are."""
    for sentence in sentences[:MANY]:
        say(sentence)
    if len(sentences) > MANY:
        say(f"... and {len(sentences) - MANY} more lines about {about}")


def propose(words: Sequence[str]) -> None:
    """Proposes the next command."""
    spoken(command(words, columns_of(sys.stderr), "next: "))


def spoken(text: str) -> None:
    """Prints text as it is. Anything longer than a line of the terminal is a single word, such as a path; wrapped by
    the terminal itself, it can still be copied."""
    Speaker(stderr=True, quiet=hushed()).print(text, markup=False, emoji=False, highlight=False, soft_wrap=True)
