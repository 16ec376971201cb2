"""Sentences beside the results, of the first of several processes alone."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence

from rich.console import Console

from onefold.terminal.wrap import columns_of, command, fitted

MANY = 10  # sentences of a kind
HUSHED: list[bool] = []  # of several processes only the first is heard


def hush() -> None:
    """Nothing is shown from here on."""
    HUSHED.append(True)


def hushed() -> bool:
    return bool(HUSHED)


class Speaker(Console):
    """Rich's console, which would end the process by itself where nobody listens any more."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def say(text: str) -> None:
    """A sentence beside the results, or several lines."""
    spoken(fitted(text, sys.stderr))


def say_first(sentences: Sequence[str], about: str) -> None:
    """The first few of many, and how many more there are."""
    for sentence in sentences[:MANY]:
        say(sentence)
    if len(sentences) > MANY:
        say(f"... and {len(sentences) - MANY} more lines about {about}")


def propose(words: Sequence[str]) -> None:
    """The command that comes next."""
    spoken(command(words, columns_of(sys.stderr), "next: "))


def spoken(text: str) -> None:
    """As it is: what is longer than a line of the terminal is one word, which can be copied when the terminal wraps
    it."""
    Speaker(stderr=True, quiet=hushed()).print(text, markup=False, emoji=False, highlight=False, soft_wrap=True)
