from __future__ import annotations

import io
import shlex

import pytest

from onefold.terminal import fitted, propose, say, wrapped
from onefold.terminal.wrap import command

PATH = "/a/" + "long/" * 20 + "report.html"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def narrow(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Standard error goes to a terminal of 40 columns."""
    terminal = Terminal()
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr("sys.stderr", terminal)
    return terminal


def test_lines_are_broken_between_words() -> None:
    text = "times will be longer than they are alone, and onefold distill cifar10 --optim.weight-decay 0.1 too"
    lines = wrapped(text, 30).split("\n")
    assert " ".join(lines) == text
    assert max(map(len, lines)) <= 30
    assert len(lines) == 4


def test_what_fits_is_left_as_it_is() -> None:
    text = "two  words\n\n  and  more\n"
    assert wrapped(text, 12) == text


def test_a_path_stays_whole() -> None:
    assert wrapped(f"written: {PATH}", 40) == f"written:\n{PATH}"
    assert wrapped(PATH, 40) == PATH


def test_further_lines_stand_under_the_second_of_two_columns() -> None:
    told = wrapped("data       digits\na step     teachers 6 forward and 1 backward", 30)
    assert told == "data       digits\na step     teachers 6 forward\n           and 1 backward"


def test_further_lines_of_a_list_are_told_from_its_items() -> None:
    told = wrapped("differs:\n  optim.lr: 0.1 -> 0.3\n  epochs: 200 -> 30", 20)
    assert told == "differs:\n  optim.lr: 0.1 ->\n    0.3\n  epochs: 200 -> 30"
    # Where the first column takes most of a line, the second has no room of its own.
    assert wrapped("  a b c d e f g h  i j k", 20) == "  a b c d e f g h  i\n    j k"


def test_commands_in_a_list_can_be_copied() -> None:
    told = wrapped("Examples:\n  onefold report runs/a runs/b --out c\n  onefold demo  (all of it, at once)", 24)
    assert told == (
        "Examples:\n  onefold report \\\n    runs/a runs/b \\\n    --out c\n  onefold demo  (all of\n    it, at once)"
    )


def test_lines_that_go_elsewhere_stay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = narrow(monkeypatch)
    text = "a word and another one " * 9
    assert fitted(text, io.StringIO()) == fitted(text, None) == text
    assert fitted(text, terminal) == wrapped(text, 40) != text


def test_what_is_said_fits_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = narrow(monkeypatch)
    say("[bold] times will be longer than they are alone :one:")
    say(PATH)
    assert terminal.getvalue() == f"[bold] times will be longer than they\nare alone :one:\n{PATH}\n"


def test_what_is_said_elsewhere_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    say("a word and another one " * 9)
    propose(["onefold", "report", *["runs/cifar10"] * 9])
    assert capsys.readouterr().err.count("\n") == 2


def test_a_command_can_be_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = narrow(monkeypatch)
    words = ["onefold", "distill", "cifar10", "--teachers", "runs/two words/teachers", "--optim.lr", "0.1"]
    propose(words)
    told = terminal.getvalue()
    assert told.startswith("next: onefold distill cifar10 \\\n")
    assert max(map(len, told.split("\n"))) <= 40
    assert shlex.split(told.removeprefix("next: ").replace("\\\n", " ")) == words
    assert command(words, None) == shlex.join(words)
