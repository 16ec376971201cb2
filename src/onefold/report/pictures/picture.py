"""A picture is panels with one legend: on a page each panel is a drawing of its own, in a file they stand in rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from matplotlib.figure import FigureBase

from onefold.report.pictures.style import Style

# Inches of a panel, by how many stand side by side: all pictures are as wide, so that their text has one size.
SIZES = {2: (4.5, 3.0), 3: (3.0, 2.5), 4: (2.25, 2.2)}


@dataclass(frozen=True)
class Palette:
    """Colours by their part in a picture."""

    ink: str
    faint: str
    accuracy: str
    gap: str
    series: tuple[str, ...]

    def of(self, style: Style) -> str:
        """The colour of a row."""
        return self.ink if style.colour == "ink" else self.series[int(style.colour.removeprefix("s"))]


# Okabe and Ito's, which people tell apart whatever colours they see; lines differ in dashes and marks, too. The page
# has colours like them (page.css), darker or lighter, so that they stand out from it; a test looks at all of them with
# the eyes of people who lack one kind of cones.
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#5c666e")
PRINTED = Palette("#1b1f24", "#aab1ba", "#0072b2", "#d55e00", SERIES)
# Stand-ins that become the page's own colours, so that a picture follows the page into the dark.
COLOURS = {"#010203": "ink", "#040506": "faint", "#070809": "accuracy", "#0a0b0c": "gap"}
COLOURS |= {f"#0d0e{16 + k:02x}": f"s{k}" for k in range(len(SERIES))}
INK, FAINT, ACCURACY, GAP, *LINES = COLOURS
ON_PAGE = Palette(INK, FAINT, ACCURACY, GAP, tuple(LINES))


@dataclass(frozen=True)
class Panel:
    """One drawing: what it is called, what it shows in words, and how it is drawn."""

    title: str
    description: str
    draw: Callable[[FigureBase, Palette], None]
    size: tuple[float, float] = SIZES[3]
    under: str = ""  # a second line of the title; panels of a picture that has them all have one


@dataclass(frozen=True)
class Picture:
    """Panels that belong together; `columns` of them stand side by side in a file."""

    name: str
    title: str
    caption: str
    panels: tuple[Panel, ...]
    columns: int = 3
    legend: tuple[tuple[str, Style], ...] = ()  # in the styles of the panels: what is drawn without marks has none here
    text: float = 10.0  # points, of the letters in a file
