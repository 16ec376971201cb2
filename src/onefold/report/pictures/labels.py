"""Labels at the ends of lines: a marker, a name, and a thin line that leads to it."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib import rcParams
from matplotlib.axes import Axes

from onefold.report.pictures.axes import line_of
from onefold.report.pictures.picture import Palette
from onefold.report.pictures.style import Style

LEADING = 1.2  # line height, relative to the text size
BOLD = 0.9  # of the letters of a plain name that fit on a line
SPACE = 1.8  # height of a name beside a point, with the space around it, relative to the text size
MARK, NAME = 13.0, 21.0  # positions in points right of the axes, at a text size of 10


@dataclass(frozen=True)
class Label:
    """A name, the marker before it, and the point that it labels."""

    name: str
    style: Style
    x: float
    y: float
    strong: bool = False


def beside(axes: Axes, palette: Palette, labels: Sequence[Label], most: int) -> None:
    """Puts the names in a column right of the axes, each as close to its height as the others allow. Names of more than
    `most` letters take several lines. The axes must be linear, with their limits already set."""
    labels = sorted(labels, key=lambda label: label.y)
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    across, up = (right - left) / points(axes.bbox.width, axes), (high - low) / points(axes.bbox.height, axes)
    size = rcParams["font.size"]
    names = [folded(label.name, most, strong=label.strong) for label in labels]
    heights = [LEADING * size * up * (1 + name.count("\n")) for name in names]
    room = size * up  # below the axes; there is half as much above them
    places = apart([label.y for label in labels], heights, low - room, high + room / 2)
    for label, name, y in zip(labels, names, places, strict=True):
        mark = right + MARK / 10 * size * across
        way = [label.x, right, mark], [label.y, label.y, y]
        axes.plot(*way, color=palette.faint, linewidth=0.7, zorder=0.5, clip_on=False)
        drawn = line_of(label.style, palette, [mark], [y])
        drawn.set(clip_on=False, zorder=3, markersize=1.2 * label.style.size * size / 10)
        axes.add_artist(drawn)
        looks = {"fontsize": 0.9 * size, "fontweight": "bold" if label.strong else "normal", "linespacing": 1.1}
        axes.text(right + NAME / 10 * size * across, y, name, va="center", color=palette.ink, **looks)


def aside(axes: Axes, palette: Palette, label: Label, *, below: bool) -> None:
    """Puts a name to the right of a point, above or below it; moves the end of the axis if the name would cross it."""
    size = rcParams["font.size"]
    low, high = axes.get_ylim()
    room = SPACE * size * (high - low) / points(axes.bbox.height, axes)
    axes.set_ylim(min(low, label.y - room) if below else low, high if below else max(high, label.y + room))
    looks = {"fontsize": 0.9 * size, "color": palette.ink, "va": "top" if below else "bottom"}
    away = (0.5 * size, (-0.4 if below else 0.4) * size)
    axes.annotate(label.name, (label.x, label.y), xytext=away, textcoords="offset points", **looks)


def points(pixels: float, axes: Axes) -> float:
    return pixels / axes.figure.dpi * 72


def folded(name: str, most: int, *, strong: bool = False) -> str:
    """Breaks a name that is too long for one line: before its last "+" and before its "(", then wherever it has to. Of
    bold letters, fewer fit."""
    if len(name) <= most:
        return name
    most = int(BOLD * most) if strong else most
    name, bracket, detail = name.partition(" (")
    together = [part.replace(" ", "\u00a0") if len(part) < most else part for part in detail.split(", ")]
    detail = ", ".join(together)  # a setting and its value stay on one line
    first, plus, rest = name.rpartition(" + ")
    parts = ([first, f"+ {rest}"] if plus and len(name) > most else [name]) + ([f"({detail}"] if bracket else [])
    lines = [line for part in parts for line in textwrap.wrap(part, most)]
    return "\n".join(lines).replace("\u00a0", " ")


def apart(wanted: Sequence[float], heights: Sequence[float], low: float, high: float) -> list[float]:
    """Positions without overlap that are closest to the wanted ones, in least squares; `wanted` must be ascending."""
    middles = [sum(heights[:k]) + heights[k] / 2 for k in range(len(heights))]  # in a stack that starts at zero
    groups: list[tuple[float, int]] = []  # where stacks start, and how many labels they contain
    for place, middle in zip(wanted, middles, strict=True):
        start, count = place - middle, 1
        while groups and groups[-1][0] > start:
            before, several = groups.pop()
            start, count = (before * several + start * count) / (several + count), several + count
        groups.append((start, count))
    starts = [min(max(start, low), high - sum(heights)) for start, count in groups for _ in range(count)]
    return [start + middle for start, middle in zip(starts, middles, strict=True)]
