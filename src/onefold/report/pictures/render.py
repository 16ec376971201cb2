"""Pictures as elements of a page, and as SVG and PDF files in the paper's layout."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from onefold.report.pictures.picture import COLOURS, ON_PAGE, PRINTED, Palette, Panel, Picture, Style
from onefold.run import write_aside

UNDATED = {"svg": "Date", "pdf": "CreationDate"}  # what would make two files of one drawing differ
LINES = 0.24  # inches that a line of a legend takes


def rc(palette: Palette, salt: str) -> dict[Any, Any]:
    return {
        "svg.fonttype": "none",  # text stays text
        "svg.hashsalt": salt,  # the same drawing twice is the same file
        "pdf.fonttype": 42,
        "font.family": "sans-serif",
        "font.size": 10.0,
        "axes.unicode_minus": False,
        "text.color": palette.ink,
        "axes.labelcolor": palette.ink,
        "axes.edgecolor": palette.faint,
        "xtick.color": palette.ink,
        "ytick.color": palette.ink,
        "path.simplify": True,
    }


def panel_svg(panel: Panel, prefix: str) -> str:
    """A panel as an element: `prefix` begins every name in it, so that no two drawings of a page share one."""
    with matplotlib.rc_context(rc(ON_PAGE, prefix)):
        figure = Figure(figsize=panel.size)
        figure.patch.set_alpha(0)
        panel.draw(figure, ON_PAGE)
        drawn = io.StringIO()
        figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None})
    return embedded(drawn.getvalue(), panel.description, prefix)


def embedded(svg: str, description: str, prefix: str) -> str:
    """matplotlib's file as an element: no prolog, no metadata, no size of its own, nothing that names a server."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r"font: [^;\"]*?([\d.]+px)[^;\"]*", r"font: \1 sans-serif", svg)
    head, rest = svg.split(">", 1)
    box = re.search(r'viewBox="[^"]*"', head)
    assert box is not None, "matplotlib writes the size of a drawing"
    for stand_in, colour in COLOURS.items():
        rest = rest.replace(stand_in, f"var(--{colour})")
    rest = re.sub(r'\bid="', f'id="{prefix}-', rest)
    rest = re.sub(r'(href="|url\()#', rf"\g<1>#{prefix}-", rest)
    rest = re.sub(r"\n\s*", "\n", rest).strip()
    title = f"<title>{escaped(description)}</title>"
    return f'<svg {box.group()} role="img" aria-label="{escaped(description)}">{title}{rest}'


def escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")


def swatch_svg(style: Style) -> str:
    """The line of a legend; what it stands for is written beside it."""
    dashes = f' stroke-dasharray="{" ".join(f"{1.6 * d:g}" for d in style.dashes)}"' if style.dashes else ""
    return (
        '<svg class="swatch" viewBox="0 0 28 10" aria-hidden="true">'
        f'<line x1="0" y1="5" x2="28" y2="5" stroke="var(--s{style.colour})" stroke-width="2.5"{dashes}/></svg>'
    )


def save_picture(picture: Picture, folder: Path, endings: Sequence[str] = ("svg", "pdf")) -> list[Path]:
    """The picture as SVG and as PDF, its panels in rows, its legend below them."""
    columns = min(picture.columns, len(picture.panels))
    rows = math.ceil(len(picture.panels) / columns)
    width = max(panel.size[0] for panel in picture.panels) * columns
    height = (max(panel.size[1] for panel in picture.panels) + 0.3) * rows
    below = LINES * math.ceil(len(picture.legend) / max(columns, 1)) + 0.1 if picture.legend else 0.0
    with matplotlib.rc_context(rc(PRINTED, picture.name)):
        figure = Figure(figsize=(width, height + below))
        upper, lower = figure.subfigures(2, 1, squeeze=False, height_ratios=[height, max(below, 0.01)])[:, 0]
        each = upper.subfigures(rows, columns, squeeze=False)
        for index, panel in enumerate(picture.panels):
            part = each[index // columns][index % columns]
            title, inner = part.subfigures(2, 1, squeeze=False, height_ratios=[0.3, panel.size[1]])[:, 0]
            title.text(0.55, 0.3, panel.title, ha="center", fontsize=9)
            panel.draw(inner, PRINTED)
        if picture.legend:
            # Long enough to show a dash on both sides of the mark.
            lower.legend(
                handles=handles(picture), loc="center", ncols=columns, frameon=False, fontsize=9, handlelength=4
            )
        folder.mkdir(parents=True, exist_ok=True)
        written = []
        for suffix in endings:
            content = io.BytesIO()
            figure.savefig(content, format=suffix, metadata={UNDATED[suffix]: None})
            written.append(folder / f"{picture.name}.{suffix}")
            write_aside(written[-1], content.getvalue())
    return written


def handles(picture: Picture) -> list[Line2D]:
    return [
        Line2D(
            [],
            [],
            color=PRINTED.series[style.colour],
            linewidth=1.6,
            linestyle=(0, style.dashes) if style.dashes else "-",
            marker=style.marker or None,
            markersize=4,
            label=label,
        )
        for label, style in picture.legend
    ]
