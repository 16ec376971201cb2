"""A picture is panels with one legend: on a page each panel is a drawing of its own, in a file they stand in rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import FigureBase

MARGINS = {"left": 0.22, "right": 0.96, "bottom": 0.19, "top": 0.95}
WIDTH, HEIGHT = 3.4, 2.7  # inches of a panel
DASHES: tuple[tuple[float, ...], ...] = ((), (5, 2), (1.5, 1.5), (6, 2, 1.5, 2))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")  # more than colours: who shares one has another mark


@dataclass(frozen=True)
class Palette:
    """Colours by their part in a picture."""

    ink: str
    faint: str
    accuracy: str
    gap: str
    series: tuple[str, ...]


# Okabe and Ito's, which people tell apart whatever colours they see; lines differ in dashes and marks, too. The page
# has colours like them (page.css), darker or lighter, so that they stand out from it; a test looks at all of them with
# the eyes of people who lack one kind of cones.
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#5a5f66")
PRINTED = Palette("#1b1f24", "#aab1ba", "#0072b2", "#d55e00", SERIES)
# Stand-ins that become the page's own colours, so that a picture follows the page into the dark.
COLOURS = {"#010203": "ink", "#040506": "faint", "#070809": "accuracy", "#0a0b0c": "gap"}
COLOURS |= {f"#0d0e{16 + k:02x}": f"s{k}" for k in range(len(SERIES))}
INK, FAINT, ACCURACY, GAP, *LINES = COLOURS
ON_PAGE = Palette(INK, FAINT, ACCURACY, GAP, tuple(LINES))


@dataclass(frozen=True)
class Style:
    """What the line of a row looks like, wherever it is drawn."""

    colour: int
    dashes: tuple[float, ...]
    marker: str


@dataclass(frozen=True)
class Panel:
    """One drawing: what it is called, what it shows in words, and how it is drawn."""

    title: str
    description: str
    draw: Callable[[FigureBase, Palette], None]
    size: tuple[float, float] = (WIDTH, HEIGHT)


@dataclass(frozen=True)
class Picture:
    """Panels that belong together; `columns` of them stand side by side in a file."""

    name: str
    title: str
    caption: str
    panels: tuple[Panel, ...]
    columns: int = 3
    legend: tuple[tuple[str, Style], ...] = ()


def styles_of(labels: Sequence[str]) -> dict[str, Style]:
    """A style for each row: seven colours and four kinds of dashes, which give 28 pairs, and nine marks."""
    return {
        label: Style(k % len(SERIES), DASHES[k % len(DASHES)], MARKERS[k % len(MARKERS)])
        for k, label in enumerate(dict.fromkeys(labels))
    }


def short(value: float, _: object = None) -> str:
    """A number beside an axis: four figures and no more, for which there is room."""
    return f"{value:.4g}"


def one_axes(figure: FigureBase, xlabel: str, ylabel: str) -> Axes:
    """The axes of a panel that has one."""
    axes: Axes = figure.subplots(gridspec_kw=MARGINS)
    axes.patch.set_alpha(0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set(xlabel=xlabel, ylabel=ylabel)
    axes.yaxis.set_major_formatter(short)
    return axes


def line(
    axes: Axes,
    palette: Palette,
    style: Style,
    x: Sequence[float],
    y: Sequence[float],
    *,
    marked: bool = False,
    dashes: tuple[float, ...] | None = None,
) -> None:
    """A row's line in its style."""
    pattern = style.dashes if dashes is None else dashes
    axes.plot(
        x,
        y,
        color=palette.series[style.colour],
        linewidth=1.6,
        linestyle=(0, pattern) if pattern else "-",
        marker=style.marker if marked else None,
        markersize=4,
    )
