"""The style of a row in every picture of every report: a colour for the method, dashes for the perturbation."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from onefold.report.answers import DEFAULT

HUES = ("s0", "s1", "s2", "s3", "s4", "s5")  # s6 is the grey for single networks
Dashes = tuple[float, ...]


class Drawn(Protocol):
    """The properties of a row that determine its style."""

    @property
    def kind(self) -> str: ...
    @property
    def method(self) -> str: ...
    @property
    def perturbation(self) -> str: ...
    @property
    def members(self) -> int: ...


@dataclass(frozen=True)
class Style:
    """The style of a row and of its legend entry, lengths in points; `dashes` is None for a marker without a line."""

    colour: str  # a name in the palette
    dashes: Dashes | None = ()
    marker: str = ""
    width: float = 1.6
    size: float = 4.5  # of the marker
    hollow: bool = False
    alpha: float = 1.0

    @property
    def leads(self) -> bool:
        """Whether the line is wider than the others and drawn in front of them."""
        return self.width > Style.width

    @property
    def bare(self) -> Style:
        """The style without a marker."""
        return dataclasses.replace(self, marker="")

    @property
    def alone(self) -> Style:
        """The marker without a line."""
        return dataclasses.replace(self, dashes=None)


SINGLE, ENSEMBLE = Style("s6", (), "o"), Style("ink", (), "o")
METHODS = {"kd": ("s0", "s"), "aekd": ("s5", "D"), "proxy-end2": ("s3", "P"), "be": ("s2", "v")}
METHODS |= {"latentbe": ("s1", "^")}
PERTURBATIONS: dict[str, Dashes] = {
    "tdiv-sdiv": (),
    "none": (3.2, 1.4),
    "confods": (1, 1.1),
    "tdiv": (6, 1.4, 1, 1.4),
    "ods": (3.2, 1.4, 1, 1.4, 1, 1.4),
    "gaussian": (6, 1.8),
}
MARKERS = ("X", "<", ">", "p", "h", "d")  # for methods that are not in the table


def styles_of(rows: Iterable[tuple[str, Drawn]]) -> dict[str, Style]:
    """The style of each row, by label. A user's own method gets an unused colour if there is one. If two rows would
    look the same, because they differ only in something else, one of them gets other dashes."""
    rows = list(rows)
    own = [one.method for _, one in rows if one.kind == "student" and one.method not in METHODS]
    looks = METHODS | dict(zip(dict.fromkeys(own), itertools.cycle(spare(rows)), strict=False))
    styles: dict[str, Style] = {}
    for label, one in sorted(rows, key=lambda row: -row[1].members):  # the largest ensemble gets the solid line
        styles[label] = unlike(styled(one, looks), list(styles.values()))
    return {label: styles[label] for label, _ in rows}


def spare(rows: Sequence[tuple[str, Drawn]]) -> list[tuple[str, str]]:
    """Colours and markers for users' own methods: first colours that the table does not use, then those of methods that
    are not in the report."""
    there = [METHODS[one.method][0] for _, one in rows if one.method in METHODS]
    tabled = [hue for hue, _ in METHODS.values()]
    hues = sorted(HUES, key=lambda hue: (hue in there, hue in tabled))
    return [(hue, MARKERS[k % len(MARKERS)]) for k, hue in enumerate(hues)]


def styled(one: Drawn, looks: dict[str, tuple[str, str]]) -> Style:
    if one.kind != "student":
        return SINGLE if one.kind == "single" else ENSEMBLE
    colour, marker = looks[one.method]
    dashes = PERTURBATIONS.get(one.perturbation, ())
    if (one.method, one.perturbation) == DEFAULT:
        return Style(colour, dashes, "*", 2.4, 8.0)  # wider than the rest, and in front of them
    return Style(colour, dashes, marker)


def unlike(wanted: Style, others: Sequence[Style]) -> Style:
    """The style itself if it is unused, else with other dashes, or with another colour if all dashes are taken."""
    taken = {(style.colour, style.dashes) for style in others}
    hues = [wanted.colour, *(hue for hue in HUES if hue != wanted.colour)]
    pairs = [(wanted.colour, wanted.dashes), *itertools.product(hues, PERTURBATIONS.values())]
    colour, dashes = next((pair for pair in pairs if pair not in taken), pairs[0])
    return dataclasses.replace(wanted, colour=colour, dashes=dashes)
