"""The line through two members, and the plane through three."""

from __future__ import annotations

import functools

from matplotlib.figure import FigureBase

from onefold.report.measurements import Plane, Subspace
from onefold.report.pictures.picture import MARGINS, Palette, Panel, Picture, Style, line, one_axes, short
from onefold.report.table import Section

PANELS = (("train", "error"), ("test", "error"), ("test", "nll"))  # the paper's, left to right
TITLES = {"error": "error, %", "nll": "NLL"}
REESTIMATED = " (BatchNorm re-estimated)"
Measured = dict[str, Subspace]


def subspace_pictures(section: Section, styles: dict[str, Style]) -> list[Picture]:
    """Error and NLL along the line, as trained and with BatchNorm's statistics estimated again; a seed for each row."""
    measured = first_of(section)
    pictures = []
    for reestimated, suffix in ((False, ""), (True, REESTIMATED)):
        panels = [
            made for split, key in PANELS if (made := panel(measured, split, key, reestimated, styles)) is not None
        ]
        if panels:
            drawn = [label for label, one in measured.items() if any(c.reestimated == reestimated for c in one.curves)]
            caption = "Along the line through two members, t = 0 the one and t = 1 the other."
            if any(measured[label].average_t is not None for label in drawn):
                caption += " The star is the average of all members."
            name = "subspace-reestimated" if reestimated else "subspace"
            legend = tuple((label, styles[label]) for label in drawn)
            pictures.append(Picture(name, f"Between two members{suffix}", caption, tuple(panels), legend=legend))
    return pictures


def first_of(section: Section) -> Measured:
    """The first measured network of each row."""
    found: Measured = {}
    for row in section.rows:
        for answer in row.answers:
            if answer.measurements.subspace is not None:
                found.setdefault(row.label, answer.measurements.subspace)
    return found


def panel(measured: Measured, split: str, key: str, reestimated: bool, styles: dict[str, Style]) -> Panel | None:
    lines: dict[str, tuple[list[float], list[float], tuple[float, float] | None]] = {}
    scale = 100.0 if key == "error" else 1.0
    for label, one in measured.items():
        for curve in one.curves:
            if (curve.split, curve.reestimated) == (split, reestimated):
                values = curve.error if key == "error" else curve.nll
                point = one.average.get(split + ("_reestimated" if reestimated else ""))
                mark = None if point is None or one.average_t is None else (one.average_t, scale * point[key])
                lines[label] = list(one.t), [scale * value for value in values], mark
    if not lines:
        return None
    title = f"{split} {TITLES[key]}"
    words = "; ".join(
        f"{label} between {min(y):.4g} and {max(y):.4g}" + (f", {mark[1]:.4g} at the average" if mark else "")
        for label, (_, y, mark) in lines.items()
    )
    return Panel(title, f"{title} along the line: {words}.", functools.partial(draw, title, lines, styles))


def draw(
    title: str,
    lines: dict[str, tuple[list[float], list[float], tuple[float, float] | None]],
    styles: dict[str, Style],
    figure: FigureBase,
    palette: Palette,
) -> None:
    axes = one_axes(figure, "t", title)
    for label, (x, y, mark) in lines.items():
        line(axes, palette, styles[label], x, y)
        if mark is not None:
            axes.plot(*mark, marker="*", markersize=11, color=palette.series[styles[label].colour], linestyle="")
    for t in (0, 1):
        axes.axvline(t, color=palette.faint, linewidth=0.8, linestyle=(0, (2, 2)), zorder=0)


def plane_pictures(section: Section) -> list[Picture]:
    """A contour picture for each row that has a plane."""
    pictures = []
    for number, (label, one) in enumerate(first_of(section).items()):
        if one.plane is None:
            continue
        panels = []
        for key, values in (("error", one.plane.error), ("nll", one.plane.nll)):
            scale = 100.0 if key == "error" else 1.0
            scaled = [[scale * value for value in row] for row in values]
            low, high = min(map(min, scaled)), max(map(max, scaled))
            words = f"{label}, {TITLES[key]} on the plane through three members: from {low:.4g} to {high:.4g}."
            drawn = functools.partial(draw_plane, one.plane, scaled)
            panels.append(Panel(f"{label}: {TITLES[key]}", words, drawn, (3.6, 3.0)))
        caption = "The plane through three members; the star is the average of all."
        pictures.append(Picture(f"plane-{number}", f"The plane of three members: {label}", caption, tuple(panels), 2))
    return pictures


def draw_plane(plane: Plane, values: list[list[float]], figure: FigureBase, palette: Palette) -> None:
    axes = figure.subplots(gridspec_kw=MARGINS | {"right": 0.87})
    filled = axes.contourf(plane.a, plane.b, values, levels=12, cmap="cividis")
    axes.contour(plane.a, plane.b, values, levels=filled.levels, colors="#ffffff", linewidths=0.4)
    bar = figure.colorbar(filled, ax=axes, pad=0.03, format=short)
    for name, (a, b) in ((name, (p[0], p[1])) for name, p in plane.points.items()):
        average = name == "average"
        axes.plot(a, b, marker="*" if average else "o", markersize=12 if average else 7, color="#ffffff")
        axes.plot(a, b, marker="*" if average else "o", markersize=9 if average else 4.5, color="#d55e00")
        if not average:
            axes.annotate(name, (a, b), xytext=(6, 4), textcoords="offset points", color="#ffffff", fontweight="bold")
    axes.set(xlabel="a", ylabel="b")
    bar.outline.set_edgecolor(palette.faint)
