"""Accuracy and likelihood against passes per image: what an ensemble costs, and how much of it one pass keeps."""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.figure import FigureBase

from onefold.report.pictures.axes import line, one_axes
from onefold.report.pictures.labels import LEADING, Label, aside, beside, folded
from onefold.report.pictures.picture import SIZES, Palette, Panel, Picture
from onefold.report.pictures.style import ENSEMBLE, SINGLE, Style, styles_of
from onefold.report.table import COLUMNS, Column, Row, Section

PASSES = "passes per image"
NAMES = 1.9, 22  # inches for the names of the lines, and characters that fit on one line there
FOLDED = 1.2, 13  # the same if most names may take two lines
LARGE, LETTERS = (4.36, 3.8), 16.5  # size of a panel in inches, and of text in points, that is legible on a phone
AXIS = 0.5  # inches below the names, for the axis
AROUND = 0.06  # margin above and below, as a fraction of the range of the values


@dataclass(frozen=True)
class Point:
    """The value of a row, and its cost."""

    passes: int
    value: float
    deviation: float | None

    @property
    def ends(self) -> tuple[float, float]:
        around = self.deviation or 0.0
        return self.value - around, self.value + around


@dataclass(frozen=True)
class Ensembles:
    """Ensembles of growing size whose teachers were trained alike; the name and the style are those of the largest."""

    name: str
    style: Style
    names: tuple[str, ...]  # of the points
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Drawing:
    """The content of a panel: ensembles of growing size, one line for each way to train teachers, and students by
    name."""

    column: Column
    ensembles: tuple[Ensembles, ...]
    students: tuple[tuple[str, Point, Style], ...]

    @property
    def words(self) -> str:
        digits = self.column.digits
        parts = [
            f"{name} {p.value:.{digits}f}"
            for one in self.ensembles
            for name, p in zip(one.names, one.points, strict=True)
        ]
        parts += [f"{label} {p.value:.{digits}f} at {p.passes}" for label, p, _ in self.students]
        return f"{self.column.title} by {PASSES}: {'; '.join(parts)}."

    @property
    def lines(self) -> int:
        """How many lines of text the names take in the room of a page."""
        names = [(one.name, False) for one in self.ensembles]
        names += [(label, style.leads) for label, _, style in self.students]
        return sum(1 + folded(name, NAMES[1], strong=strong).count("\n") for name, strong in names)


def cost_picture(section: Section, styles: dict[str, Style]) -> Picture | None:
    """A panel for the accuracy and one for the likelihood; None if there is no ensemble."""
    panels = []
    for column in columns([section]):
        drawing = drawing_of(section, column, styles)
        width, height = SIZES[2]
        size = width, max(height, drawing.lines * LEADING * 10 / 72 + AXIS)  # 10: points, the size of the text
        drawn = functools.partial(draw, drawing)
        panels.append(Panel(column.title, drawing.words, drawn, size, f"{column.better} is better"))
    caption = (
        "The line shows ensembles of the first 1, 2, ... teachers, with one pass per teacher; at 1 it is the mean of "
        "the single networks. Students are drawn at the number of passes they need; a thin horizontal line extends "
        "those with a single pass. Bars are standard deviations over the networks of a row."
    )
    title = "Accuracy and likelihood by inference cost"
    return Picture("cost", title, caption, tuple(panels), columns=2) if drawing.ensembles else None


def side_by_side(titled: Sequence[tuple[str, Section]]) -> Picture | None:
    """The likelihood on several data sets, a titled panel each, with the students that all of them have. In large
    letters, for a picture that is shown small."""
    if len(titled) < 2:
        return None
    sections = [section for _, section in titled]
    common = set.intersection(*({row.label for row in section.of_kind("student")} for section in sections))
    column = columns(sections)[1]
    panels = []
    for title, section in titled:
        drawing = drawing_of(section, column, styles_of((row.label, row.first) for row in section.rows), common)
        drawn = functools.partial(draw, drawing, room=FOLDED)
        panels.append(Panel(title, drawing.words, drawn, LARGE, f"{column.title}, {column.better} is better"))
        if not drawing.ensembles:
            return None
    caption = "Ensembles by their number of networks, and students by the number of passes they need."
    return Picture("cost", f"{column.title} by {PASSES}", caption, tuple(panels), 2, text=LETTERS)


def columns(sections: Sequence[Section]) -> tuple[Column, Column]:
    """Accuracy, and cNLL if every row has it, else NLL."""
    accuracy, nll, _, cnll, *_ = COLUMNS
    every = [row for section in sections for row in (*section.rows, *section.sizes)]
    return accuracy, cnll if all(row.mean(cnll.key) is not None for row in every) else nll


def drawing_of(
    section: Section, column: Column, styles: dict[str, Style], chosen: Collection[str] | None = None
) -> Drawing:
    students = [row for row in section.of_kind("student") if chosen is None or row.label in chosen]
    marks = tuple((row.label, point(row, column), styles[row.label]) for row in students)
    return Drawing(column, lines_of(section, column, styles), marks)


def lines_of(section: Section, column: Column, styles: dict[str, Style]) -> tuple[Ensembles, ...]:
    """For teachers trained alike, the mean of the single networks, and the ensembles of the first 2, 3, ..."""
    together: dict[str, list[Row]] = {}
    for row in section.sizes or section.of_kind("ensemble"):
        if row.first.members > 1:
            together.setdefault(repr(sorted(row.first.trained.items())), []).append(row)
    found = []
    for sizes in together.values():
        alone = [row for row in section.of_kind("single") if row.first.trained == sizes[0].first.trained]
        # The label and the style are those of the table: among all sizes, other labels may be needed.
        largest = next((row for row in section.rows if row.first.setting == sizes[-1].first.setting), sizes[-1])
        line = [*alone, *sizes]
        names, points = tuple(row.label for row in line), tuple(point(row, column) for row in line)
        found.append(Ensembles(largest.label, styles.get(largest.label, ENSEMBLE), names, points))
    return tuple(found)


def point(row: Row, column: Column) -> Point:
    mean, deviation = row.mean(column.key), row.deviation(column.key)
    assert mean is not None, "every row has been measured"
    return Point(row.first.passes, column.scale * mean, None if deviation is None else column.scale * deviation)


def draw(drawing: Drawing, figure: FigureBase, palette: Palette, room: tuple[float, int] = NAMES) -> None:
    axes = one_axes(figure, PASSES, "", left=0.56, right=room[0], top=0.08)
    every = [p for one in drawing.ensembles for p in one.points] + [p for _, p, _ in drawing.students]
    most, ends = max(p.passes for p in every), [end for p in every for end in p.ends]
    around = AROUND * (max(ends) - min(ends)) or 1.0
    right = most + 0.2
    axes.set(xlim=(0.8, right), ylim=(min(ends) - around, max(ends) + around))
    axes.set_xticks(range(1, most + 1))
    names = []
    for name, p, style in drawing.students:
        if p.passes == 1:
            line(
                axes,
                palette,
                style.bare,
                [1, right],
                [p.value] * 2,
                linewidth=0.5 * style.width,
                linestyle="-",
                zorder=1,
            )
        marked(axes, palette, style, p)
        names.append(Label(name, style.alone, p.passes if p.passes > 1 else right, p.value, style.leads))
    for one in drawing.ensembles:
        first, last = one.points[0], one.points[-1]
        line(axes, palette, one.style.bare, [p.passes for p in one.points], [p.value for p in one.points])
        for p in one.points:
            marked(axes, palette, SINGLE if p.passes == 1 else one.style, p)
        names.append(Label(one.name, one.style.alone, last.passes, last.value))
        if first.passes == 1:
            # On the side the line does not go to. Which single network it is says the name at the line's end.
            below = one.points[1].value > first.value
            aside(axes, palette, Label("single network", SINGLE.alone, 1, first.value), below=below)
    beside(axes, palette, names, room[1])


def marked(axes: Axes, palette: Palette, style: Style, p: Point) -> None:
    """Draws the marker of a row, with an error bar of one deviation each way."""
    if p.deviation:
        line(axes, palette, style.bare, [p.passes] * 2, p.ends, linewidth=1.0, linestyle="-", alpha=0.7)
    size = 1.5 * style.size * rcParams["font.size"] / 10
    line(axes, palette, style.alone, [p.passes], [p.value], markersize=size, zorder=3, clip_on=False)
