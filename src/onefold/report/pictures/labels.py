"""Names beside the ends of lines: a mark, a name, and a thin line from where it belongs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib import rcParams
from matplotlib.axes import Axes

from onefold.report.pictures.axes import line_of
from onefold.report.pictures.picture import Palette
from onefold.report.pictures.style import Style

LEADING = 1.2  # of a line of text, in its size
MARK, NAME = 13.0, 21.0  # points right of the axes, at a text size of 10


@dataclass(frozen=True)
class Label:
    """A name, the mark before it, and the point that it is the name of."""

    name: str
    style: Style
    x: float
    y: float
    strong: bool = False


def beside(axes: Axes, palette: Palette, labels: Sequence[Label], most: int) -> None:
    """The names in a column right of the axes, each as near to its height as the others let it; names of more than so
    many letters take two lines. The axes are linear, and have their limits."""
    labels = sorted(labels, key=lambda label: label.y)
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    across, up = (right - left) / points(axes.bbox.width, axes), (high - low) / points(axes.bbox.height, axes)
    size = rcParams["font.size"]
    names = [folded(label.name, most) for label in labels]
    heights = [LEADING * size * up * (1 + name.count("\n")) for name in names]
    room = size * up  # above and below the axes
    places = apart([label.y for label in labels], heights, low - room, high + room)
    for label, name, y in zip(labels, names, places, strict=True):
        mark = right + MARK / 10 * size * across
        way = [label.x, right, mark], [label.y, label.y, y]
        axes.plot(*way, color=palette.faint, linewidth=0.7, zorder=0.5, clip_on=False)
        drawn = line_of(label.style, palette, [mark], [y])
        drawn.set(clip_on=False, zorder=3, markersize=1.2 * label.style.size * size / 10)
        axes.add_artist(drawn)
        looks = {"fontsize": 0.9 * size, "fontweight": "bold" if label.strong else "normal", "linespacing": 1.1}
        axes.text(right + NAME / 10 * size * across, y, name, va="center", color=palette.ink, **looks)


def aside(axes: Axes, palette: Palette, label: Label) -> None:
    """A name right of a point."""
    size = rcParams["font.size"]
    looks = {"fontsize": 0.9 * size, "color": palette.ink, "va": "center", "textcoords": "offset points"}
    axes.annotate(label.name, (label.x, label.y), xytext=(0.8 * size, 0.2 * size), **looks)


def points(pixels: float, axes: Axes) -> float:
    return pixels / axes.figure.dpi * 72


def folded(name: str, most: int) -> str:
    """In two lines, broken before the last part that a plus adds, where it is too long for one."""
    first, plus, rest = name.rpartition(" + ")
    return f"{first}\n+ {rest}" if plus and len(name) > most else name


def apart(wanted: Sequence[float], heights: Sequence[float], low: float, high: float) -> list[float]:
    """Places as near to the wanted ones as may be, by their squares, where nothing overlaps; `wanted` ascend."""
    middles = [sum(heights[:k]) + heights[k] / 2 for k in range(len(heights))]  # of a pile that begins at zero
    groups: list[tuple[float, int]] = []  # where piles begin, and how many they hold
    for place, middle in zip(wanted, middles, strict=True):
        start, count = place - middle, 1
        while groups and groups[-1][0] > start:
            before, several = groups.pop()
            start, count = (before * several + start * count) / (several + count), several + count
        groups.append((start, count))
    starts = [min(max(start, low), high - sum(heights)) for start, count in groups for _ in range(count)]
    return [start + middle for start, middle in zip(starts, middles, strict=True)]
