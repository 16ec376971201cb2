"""The axes of a panel, and lines on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure, FigureBase, SubFigure
from matplotlib.lines import Line2D
from matplotlib.ticker import Formatter, LogLocator, NullLocator

from onefold.report.pictures.picture import Palette
from onefold.report.pictures.style import Style

LEFT, RIGHT, BOTTOM, TOP = 0.75, 0.12, 0.5, 0.1  # inches around the axes, whatever the size of a panel
FIGURES = 4  # significant digits of a tick label: there is no room for more
DECADES = 100  # ratio of largest to smallest beyond which a common number of decimals does not suit both


class Even(Formatter):
    """Tick labels that all have as many decimals as the one that needs most."""

    def __call__(self, value: float, pos: int | None = None) -> str:
        del pos
        return self.format_ticks([value])[0]

    def format_ticks(self, values: Sequence[float]) -> list[str]:
        low, high = sorted(self.axis.get_view_interval()) if self.axis is not None else (min(values), max(values))
        shown = [value for value in values if low <= value <= high]
        sizes = [abs(value) for value in shown if value]
        if sizes and max(sizes) >= DECADES * min(sizes) and min(sizes) < 1:
            return [signed(f"{value:g}") for value in values]
        needed = [f"{value:.{FIGURES}g}" for value in shown]
        decimals = max((len(text.partition(".")[2]) for text in needed if "e" not in text), default=0)
        return [signed(f"{value:.{decimals}f}") for value in values]


def signed(text: str) -> str:
    """Uses a minus sign that is as wide as a plus, and none before zero."""
    return text.lstrip("-") if not text.strip("-0.") else text.replace("-", "\u2212")


def margins(
    figure: FigureBase, left: float = LEFT, right: float = RIGHT, bottom: float = BOTTOM, top: float = TOP
) -> dict[str, Any]:
    """Converts inches to fractions of a panel; scaled up if the text is larger than 10 points."""
    width, height = (side / (rcParams["font.size"] / 10) for side in inches(figure))
    return {"left": left / width, "right": 1 - right / width, "bottom": bottom / height, "top": 1 - top / height}


def inches(figure: FigureBase) -> tuple[float, float]:
    assert isinstance(figure, Figure | SubFigure), "there are no others"
    return figure.bbox.width / figure.dpi, figure.bbox.height / figure.dpi


def one_axes(figure: FigureBase, xlabel: str, ylabel: str, **around: float) -> Axes:
    """The axes of a panel that has only one; `around` are margins in inches."""
    axes: Axes = figure.subplots(gridspec_kw=margins(figure, **around))
    plain(axes)
    axes.set(xlabel=xlabel, ylabel=ylabel)
    axes.yaxis.set_major_formatter(Even())
    return axes


def plain(axes: Axes) -> None:
    axes.patch.set_alpha(0)
    axes.spines[["top", "right"]].set_visible(False)


def line_of(style: Style, palette: Palette, x: Sequence[float] = (), y: Sequence[float] = ()) -> Line2D:
    """A row's line in a panel, or, without points, in a legend."""
    colour = palette.of(style)
    return Line2D(
        x,
        y,
        color=colour,
        alpha=style.alpha,
        linewidth=style.width,
        linestyle="" if style.dashes is None else (0, style.dashes) if style.dashes else "-",
        marker=style.marker or None,
        markersize=style.size,
        markerfacecolor="none" if style.hollow else colour,
        markeredgewidth=0.8 if style.hollow else 0,
        zorder=2 + style.width / 10,  # the widest line in front
    )


def line(axes: Axes, palette: Palette, style: Style, x: Sequence[float], y: Sequence[float], **looks: Any) -> None:
    """Draws a row's line in its style, with `looks` overriding some of it."""
    drawn = line_of(style, palette, x, y)
    drawn.set(**looks)
    axes.add_line(drawn)
    axes.autoscale_view()


def logarithmic(axes: Axes, spread: float) -> None:
    """Makes the y axis logarithmic; `spread` is the ratio of the highest value to the lowest."""
    axes.set_yscale("log")
    subs = (1, 1.5, 2, 3, 5, 7) if spread < 10 else (1, 2, 5) if spread < 100 else (1,)
    axes.yaxis.set_major_locator(LogLocator(subs=subs))
    axes.yaxis.set_major_formatter(Even())
    axes.yaxis.set_minor_locator(NullLocator())
