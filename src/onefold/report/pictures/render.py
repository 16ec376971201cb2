"""Renders pictures as elements of a page, and as SVG and PDF files."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.markers import MarkerStyle
from matplotlib.path import Path as Outline
from matplotlib.transforms import Affine2D

from onefold.report.pictures.axes import line_of
from onefold.report.pictures.picture import COLOURS, ON_PAGE, PRINTED, Palette, Panel, Picture
from onefold.report.pictures.style import Style
from onefold.run import write_aside

UNDATED = {"svg": "Date", "pdf": "CreationDate"}  # metadata that would make two files of the same drawing differ
SCALE = 1.4 / 16  # rem on a page per point of a drawing, as an upper limit, so that all text has the same size
TITLE = 0.26  # inches for the title of a panel
LINES = 0.24  # inches for a line of the legend
TEXT = 9.0  # text size of legends, in points
SWATCH = 36.0  # points: long enough to show a dash on both sides of the marker


def rc(palette: Palette, salt: str, text: float = 10.0) -> dict[Any, Any]:
    return {
        "svg.fonttype": "none",  # text stays text
        "svg.hashsalt": salt,  # makes output reproducible
        "pdf.fonttype": 42,
        "font.family": "sans-serif",
        "font.size": text,
        "text.color": palette.ink,
        "axes.labelcolor": palette.ink,
        "axes.edgecolor": palette.faint,
        "xtick.color": palette.ink,
        "ytick.color": palette.ink,
        "path.simplify": True,
    }


def panel_svg(panel: Panel, prefix: str) -> str:
    """A panel as an SVG element; all ids in it start with `prefix`, so that they are unique on the page."""
    with matplotlib.rc_context(rc(ON_PAGE, prefix)):
        figure = Figure(figsize=panel.size)
        figure.patch.set_alpha(0)
        panel.draw(figure, ON_PAGE)
        drawn = io.StringIO()
        figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None})
    return embedded(drawn.getvalue(), panel.description, prefix)


def embedded(svg: str, description: str, prefix: str) -> str:
    """Turns matplotlib's file into an element: no prolog, no metadata, no fixed size, no external references."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r"font: [^;\"]*?([\d.]+px)[^;\"]*", r"font: \1 sans-serif", svg)
    head, rest = svg.split(">", 1)
    box = re.search(r'viewBox="0 0 ([\d.]+) [^"]*"', head)
    assert box is not None, "matplotlib writes the size of a drawing"
    shown = SCALE * float(box.group(1))
    for stand_in, colour in COLOURS.items():
        rest = rest.replace(stand_in, f"var(--{colour})")
    rest = re.sub(r'\bid="', f'id="{prefix}-', rest)
    rest = re.sub(r'(href="|url\()#', rf"\g<1>#{prefix}-", rest)
    rest = re.sub(r"\n\s*", "\n", rest).strip()
    words = escaped(description)
    head = f'{box.group()} style="max-width: {shown:.2f}rem"'
    return f'<svg {head} role="img" aria-label="{words}"><title>{words}</title>{rest}'


def escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")


def swatch_svg(style: Style) -> str:
    """The line and marker of a legend entry on a page, without its text. Lengths are in points, as in the drawings, and
    the marker is matplotlib's."""
    drawn = []
    if style.dashes is not None:
        pattern = " ".join(f"{style.width * length:g}" for length in style.dashes)
        dashes = f' stroke-dasharray="{pattern}"' if pattern else ""
        drawn.append(
            f'<line x1="0" y1="5" x2="{SWATCH:g}" y2="5" stroke="var(--{style.colour})" '
            f'stroke-width="{style.width:g}"{dashes}/>'
        )
    if style.marker:
        fill = "none" if style.hollow else f"var(--{style.colour})"
        rim = f' stroke="var(--{style.colour})" stroke-width="0.8"' if style.hollow else ""
        drawn.append(f'<path d="{mark(style)}" fill="{fill}"{rim}/>')
    return (
        f'<svg class="swatch" viewBox="0 0 {SWATCH:g} 10" opacity="{style.alpha:g}" aria-hidden="true">'
        f"{''.join(drawn)}</svg>"
    )


def mark(style: Style) -> str:
    """The outline of a marker in the middle of a swatch, as an SVG path."""
    marker = MarkerStyle(style.marker)
    outline = marker.get_path().transformed(marker.get_transform() + Affine2D().scale(style.size, -style.size))
    letters = {Outline.MOVETO: "M", Outline.LINETO: "L", Outline.CURVE3: "Q", Outline.CURVE4: "C"}
    parts = []
    for corners, code in outline.iter_segments():
        if code == Outline.CLOSEPOLY:
            parts.append("Z")
            continue
        pairs = zip(corners[::2], corners[1::2], strict=True)
        parts.append(letters[code] + " ".join(f"{SWATCH / 2 + x:.2f} {5 + y:.2f}" for x, y in pairs))
    return "".join(parts)


def save_picture(picture: Picture, folder: Path, endings: Sequence[str] = ("svg", "pdf")) -> list[Path]:
    """Saves the picture as SVG and PDF, with its panels in rows and its legend below them."""
    text = picture.text
    columns = min(picture.columns, len(picture.panels))
    rows = math.ceil(len(picture.panels) / columns)
    width = max(panel.size[0] for panel in picture.panels) * columns
    above = TITLE * text / 10 * (1.7 if any(panel.under for panel in picture.panels) else 1)
    height = (max(panel.size[1] for panel in picture.panels) + above) * rows
    below = LINES * math.ceil(len(picture.legend) / max(columns, 1)) + 0.1 if picture.legend else 0.0
    with matplotlib.rc_context(rc(PRINTED, picture.name, text)):
        figure = Figure(figsize=(width, height + below))
        upper, lower = figure.subfigures(2, 1, squeeze=False, height_ratios=[height, max(below, 0.01)])[:, 0]
        each = upper.subfigures(rows, columns, squeeze=False)
        for index, panel in enumerate(picture.panels):
            part = each[index // columns][index % columns]
            title, inner = part.subfigures(2, 1, squeeze=False, height_ratios=[above, panel.size[1]])[:, 0]
            panel.draw(inner, PRINTED)
            left = inner.axes[0].get_position().x0
            title.text(left, 0.9, panel.title, va="top", fontsize=text, fontweight="bold")
            title.text(left, 0.08, panel.under, va="bottom", fontsize=0.9 * text)
        if picture.legend:
            handles = [line_of(style, PRINTED) for _, style in picture.legend]
            labels = [label for label, _ in picture.legend]
            length = SWATCH / TEXT
            lower.legend(
                handles, labels, loc="center", ncols=columns, frameon=False, fontsize=TEXT, handlelength=length
            )
        folder.mkdir(parents=True, exist_ok=True)
        written = []
        for suffix in endings:
            content = io.BytesIO()
            figure.savefig(content, format=suffix, metadata={UNDATED[suffix]: None})
            written.append(folder / f"{picture.name}.{suffix}")
            write_aside(written[-1], content.getvalue())
    return written
