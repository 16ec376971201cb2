"""A picture is a set of panels with one legend: separate drawings on a page, arranged in rows in a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from matplotlib.figure import FigureBase

from onefold.report.pictures.style import Style

# Size of a panel in inches, by the number of columns: all pictures have the same width, and so the same text size.
SIZES = {2: (4.5, 3.0), 3: (3.0, 2.5), 4: (2.25, 2.2)}


@dataclass(frozen=True)
class Palette:
    """Colours by their role in a picture."""

    ink: str
    faint: str
    accuracy: str
    gap: str
    series: tuple[str, ...]

    def of(self, style: Style) -> str:
        """The colour of a row."""
        return self.ink if style.colour == "ink" else self.series[int(style.colour.removeprefix("s"))]


# Okabe and Ito's colours, which colour-blind people can tell apart; lines also differ in dashes and markers. The page
# has darker or lighter versions (page.css) for enough contrast; a test simulates colour blindness for all of them.
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#5c666e")
PRINTED = Palette("#1b1f24", "#aab1ba", "#0072b2", "#d55e00", SERIES)
# Placeholders that are replaced by the page's own colours, so that pictures follow its light or dark mode.
COLOURS = {"#010203": "ink", "#040506": "faint", "#070809": "accuracy", "#0a0b0c": "gap"}
COLOURS |= {f"#0d0e{16 + k:02x}": f"s{k}" for k in range(len(SERIES))}
INK, FAINT, ACCURACY, GAP, *LINES = COLOURS
ON_PAGE = Palette(INK, FAINT, ACCURACY, GAP, tuple(LINES))


@dataclass(frozen=True)
class Panel:
    """One drawing: its title, a description of what it shows, and the function that draws it."""

    title: str
    description: str
    draw: Callable[[FigureBase, Palette], None]
    size: tuple[float, float] = SIZES[3]
    under: str = ""  # a second line of the title, in all panels of a picture or in none


@dataclass(frozen=True)
class Picture:
    """Panels that belong together, with `columns` of them side by side in a file."""

    name: str
    title: str
    caption: str
    panels: tuple[Panel, ...]
    columns: int = 3
    legend: tuple[tuple[str, Style], ...] = ()  # in the styles used in the panels, so without markers if they have none
    text: float = 10.0  # text size in a file, in points
