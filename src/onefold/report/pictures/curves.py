"""Curves over the epochs of training: learning, diversity, and what perturbations change."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from matplotlib.figure import FigureBase
from matplotlib.ticker import MaxNLocator

from onefold.report.logs import Points, curve
from onefold.report.pictures.picture import Palette, Panel, Picture, Style, line, one_axes
from onefold.report.table import Section

Lines = dict[str, Points]
LEARNING = (
    ("training loss", "train", "loss", 1.0),
    ("validation error, %", "val", "acc", -100.0),
    ("validation NLL", "val", "nll", 1.0),
)
DIVERSITY = (("Div on training images", "train_div"), ("Div on validation images", "val_div"))
CHANGES = (("change in TDiv", "tdiv_change"), ("change in SDiv", "sdiv_change"))


def learning_picture(section: Section, styles: dict[str, Style]) -> Picture | None:
    """Losses of different methods are different things: only the validation split compares them."""
    panels = []
    for title, kind, key, scale in LEARNING:
        lines = logged(section, kind, key)
        if scale < 0:
            lines = {label: [(x, 100 + scale * y) for x, y in points] for label, points in lines.items()}
        panels += [panel(title, lines, styles)] if lines else []
    caption = "Means over the networks of a row. The training loss of a method is its own: compare it with itself."
    return picture("learning", "Learning curves", caption, panels, section, styles)


def diversity_picture(section: Section, styles: dict[str, Style]) -> Picture | None:
    """The paper's figure: diversity of the members on training and held-out images, and the student's NLL."""
    panels = [panel(title, lines, styles) for title, key in DIVERSITY if (lines := logged(section, "diversity", key))]
    if panels:
        shown = set().union(*(logged(section, "diversity", key) for _, key in DIVERSITY))
        lines = {label: points for label, points in logged(section, "val", "nll").items() if label in shown}
        panels += [panel("validation NLL", lines, styles)] if lines else []
    caption = "Div is the mean Kullback-Leibler divergence between the members' predictions."
    return picture("diversity", "Diversity of the members", caption, panels, section, styles)


def perturbation_picture(section: Section, styles: dict[str, Style]) -> Picture | None:
    panels = [panel(title, lines, styles) for title, key in CHANGES if (lines := logged(section, "perturbation", key))]
    caption = "How much the perturbation of the training images raises the disagreement of teachers and of members."
    return picture("perturbation", "What the perturbation changes", caption, panels, section, styles, columns=1)


def logged(section: Section, kind: str, key: str) -> Lines:
    """The curve of every row that has one; a single point is none."""
    found = {row.label: curve(row, kind, key) for row in section.rows}
    return {label: points for label, points in found.items() if len(points) > 1}


def panel(title: str, lines: Lines, styles: dict[str, Style]) -> Panel:
    ends = "; ".join(f"{label} from {points[0][1]:.4g} to {points[-1][1]:.4g}" for label, points in lines.items())
    return Panel(title, f"{title} by epoch: {ends}.", functools.partial(draw, title, lines, styles))


def draw(title: str, lines: Lines, styles: dict[str, Style], figure: FigureBase, palette: Palette) -> None:
    axes = one_axes(figure, "epoch", title)
    for label, points in lines.items():
        line(axes, palette, styles[label], [x for x, _ in points], [y for _, y in points])
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))


def picture(
    name: str,
    title: str,
    caption: str,
    panels: Sequence[Panel],
    section: Section,
    styles: dict[str, Style],
    columns: int = 3,
) -> Picture | None:
    """With the legend of all rows that have a log; None without panels."""
    if not panels:
        return None
    kind = {"learning": ("val", "train"), "diversity": ("diversity",)}.get(name, (name,))
    drawn = [
        row.label
        for row in section.rows
        if any(record.get("kind") in kind for answer in row.answers for record in answer.log)
    ]
    return Picture(name, title, caption, tuple(panels), columns, tuple((label, styles[label]) for label in drawn))
