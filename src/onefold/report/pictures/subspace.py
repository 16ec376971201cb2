"""The line through two members, and the plane through three."""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from matplotlib.figure import FigureBase
from matplotlib.patheffects import withStroke

from onefold.report.measurements import Plane, Subspace
from onefold.report.pictures.axes import Even, line, margins, one_axes
from onefold.report.pictures.picture import SIZES, Palette, Panel, Picture
from onefold.report.pictures.style import Style
from onefold.report.table import Section

PANELS = (("train", "error"), ("test", "error"), ("test", "nll"), ("train", "nll"))  # the paper has the first three
TITLES = {"error": "error, %", "nll": "NLL"}
REESTIMATED = " (BatchNorm re-estimated)"
MIDDLE = 0.5
AVERAGES = ("average of the two", "average of all members, off the line")
DARK = "#1b1f24"  # outlines white letters, which are on light colours, too
LEVELS = 12  # of a contour plot
Measured = dict[str, Subspace]


@dataclass(frozen=True)
class Line:
    """Values along the line, and at the average of all members, which is off the line if there are more than two."""

    t: list[float]
    values: list[float]
    average: float | None
    beside: bool


def subspace_pictures(section: Section, styles: dict[str, Style]) -> list[Picture]:
    """Error and NLL along the line, as trained and with BatchNorm's statistics re-estimated; one seed per row."""
    measured = first_of(section)
    pictures = []
    for reestimated, suffix in ((False, ""), (True, REESTIMATED)):
        panels = [
            made for split, key in PANELS if (made := panel(measured, split, key, reestimated, styles)) is not None
        ]
        if panels:
            drawn = [label for label, one in measured.items() if any(c.reestimated == reestimated for c in one.curves)]
            caption = "Along the line through two members, from one at t = 0 to the other at t = 1. The star is the "
            caption += "average of all members"
            beside = {measured[label].average_t is None for label in drawn}
            if True in beside:
                caption += "; it is hollow if there are more than two, because the average is then not on the line"
            caption += measured_on(measured.values(), {"train": "training", "test": "test"})
            name = "subspace-reestimated" if reestimated else "subspace"
            legend = [(label, styles[label].bare) for label in drawn]
            legend += [(AVERAGES[hollow], star("ink", hollow)) for hollow in sorted(beside)]
            pictures.append(Picture(name, f"Between two members{suffix}", caption, tuple(panels), 4, tuple(legend)))
    return pictures


def measured_on(found: Iterable[Subspace], names: dict[str, str]) -> str:
    """The end of a sentence, and one on how many images were used, if that is known."""
    counts = {name: sorted({one.counts[name] for one in found if name in one.counts}) for name in names}
    if not all(counts.values()):
        return "."
    words = [f"{' to '.join(f'{n:,}' for n in dict.fromkeys((of[0], of[-1])))} {names[k]}" for k, of in counts.items()]
    return f". Measured on {' and '.join(words)} images."


def first_of(section: Section) -> Measured:
    """The first measured network of each row."""
    found: Measured = {}
    for row in section.rows:
        for answer in row.answers:
            if answer.measurements.subspace is not None:
                found.setdefault(row.label, answer.measurements.subspace)
    return found


def panel(measured: Measured, split: str, key: str, reestimated: bool, styles: dict[str, Style]) -> Panel | None:
    lines: dict[str, Line] = {}
    scale = 100.0 if key == "error" else 1.0
    for label, one in measured.items():
        for curve in one.curves:
            values = [scale * value for value in (curve.error if key == "error" else curve.nll)]
            if (curve.split, curve.reestimated) == (split, reestimated) and finite(values):
                point = one.average.get(split + ("_reestimated" if reestimated else ""), {}).get(key, math.nan)
                average = scale * point if math.isfinite(point) else None
                lines[label] = Line(list(one.t), values, average, one.average_t is None)
    if not lines:
        return None
    title = f"{split} {TITLES[key]}"
    words = "; ".join(
        f"{label} between {min(finite(each.values)):.4g} and {max(finite(each.values)):.4g}"
        + (f", {each.average:.4g} at the average" if each.average is not None else "")
        for label, each in lines.items()
    )
    return Panel(title, f"{title} along the line: {words}.", functools.partial(draw, title, lines, styles), SIZES[4])


def finite(values: Iterable[float]) -> list[float]:
    """The finite values: far from the members, a network may produce NaN or infinity."""
    return [value for value in values if math.isfinite(value)]


def draw(title: str, lines: dict[str, Line], styles: dict[str, Style], figure: FigureBase, palette: Palette) -> None:
    axes = one_axes(figure, "t", title)
    for label, each in lines.items():
        line(axes, palette, styles[label].bare, each.t, each.values)
        if each.average is not None:
            line(axes, palette, star(styles[label].colour, each.beside), [MIDDLE], [each.average])
    for t in (0, 1):
        axes.axvline(t, color=palette.faint, linewidth=0.8, linestyle=(0, (2, 2)), zorder=0)


def star(colour: str, hollow: bool) -> Style:
    """The marker for the average of all members."""
    return Style(colour, None, "*", size=11, hollow=hollow)


def plane_pictures(section: Section) -> list[Picture]:
    """A contour plot for each row that has a plane."""
    pictures = []
    for number, (label, one) in enumerate(first_of(section).items()):
        if one.plane is None:
            continue
        panels = []
        for key, values in (("error", one.plane.error), ("nll", one.plane.nll)):
            scale = 100.0 if key == "error" else 1.0
            scaled = [[scale * value for value in row] for row in values]
            known = finite(value for row in scaled for value in row)
            if len(set(known)) < 2:
                continue  # constant: there are no contour lines
            words = f"{label}, test {TITLES[key]} on the plane through three members: from {min(known):.4g} to "
            drawn = functools.partial(draw_plane, one.plane, scaled)
            panels.append(Panel(f"{label}: test {TITLES[key]}", f"{words}{max(known):.4g}.", drawn, SIZES[2]))
        caption = "The plane through members 0, 1 and 2, weighted 1 - a - b, a and b; the star is the average of these "
        caption += "three. Values far above the rest have the last colour of the scale"
        caption += measured_on([one], {"plane": "test"})
        if panels:
            title = f"The plane of three members: {label}"
            pictures.append(Picture(f"plane-{number}", title, caption, tuple(panels), 2))
    return pictures


def draw_plane(plane: Plane, values: list[list[float]], figure: FigureBase, palette: Palette) -> None:
    axes = figure.subplots(gridspec_kw=margins(figure, left=0.8, right=0.8))
    known = finite(value for row in values for value in row)
    low, high, top = min(known), max(known), highest(known)
    levels = [low + (top - low) * step / LEVELS for step in range(LEVELS + 1)]
    beyond: Literal["max", "neither"] = "max" if top < high else "neither"
    filled = axes.contourf(plane.a, plane.b, values, levels=levels, cmap="cividis", extend=beyond)
    axes.contour(plane.a, plane.b, values, levels=levels, colors="#ffffff", linewidths=0.4)
    bar = figure.colorbar(filled, ax=axes, pad=0.03, format=Even(), ticks=levels[::3])
    for name, (a, b) in ((name, (p[0], p[1])) for name, p in plane.points.items()):
        average = name == "average"
        axes.plot(a, b, marker="*" if average else "o", markersize=12 if average else 7, color="#ffffff")
        axes.plot(a, b, marker="*" if average else "o", markersize=9 if average else 4.5, color="#d55e00")
        if not average:
            told = axes.annotate(name, (a, b), xytext=(6, 4), textcoords="offset points", color="#ffffff")
            told.set(fontweight="bold", path_effects=[withStroke(linewidth=2, foreground=DARK)])
    axes.set(xlabel="a", ylabel="b")
    bar.outline.set_edgecolor(palette.faint)


def highest(values: list[float]) -> float:
    """The upper end of the colour scale: far outside, values grow so fast that all members would have one colour."""
    low, middle, high = min(values), statistics.median(values), max(values)
    end = low + 4 * (middle - low)
    return min(high, end) if end > low else high
