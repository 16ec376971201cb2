"""Curves over the epochs of training: learning, diversity, and what perturbations change."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from matplotlib.figure import FigureBase
from matplotlib.ticker import MaxNLocator

from onefold.report.logs import Points, curve
from onefold.report.pictures.axes import line, logarithmic, one_axes
from onefold.report.pictures.picture import Palette, Panel, Picture
from onefold.report.pictures.style import Style, styles_of
from onefold.report.table import Row, Section
from onefold.report.unfinished import Unfinished, labelled
from onefold.report.unfinished import curve as unfinished_curve

Lines = dict[str, Points]
LOSS, ERROR, NLL = "training loss", "validation error, %", "validation NLL"
LEARNING = ((LOSS, "train", "loss"), (ERROR, "val", "acc"), (NLL, "val", "nll"))
TRAIN_DIV, HELD_OUT = (
    "Div on training images",
    (("Div on test images", "test_div"), ("Div on validation images", "val_div")),
)
SPREAD = 5  # times: where curves fall further, what they end at is told apart on a logarithmic scale only
CHANGES = (("change in TDiv", "tdiv_change"), ("change in SDiv", "sdiv_change"))


def learning_picture(section: Section, styles: dict[str, Style]) -> Picture | None:
    """Losses of different methods are different things: only the validation split compares them."""
    curves: dict[str, Lines] = {}
    for title, kind, key in LEARNING:
        lines = {label: as_shown(title, points) for label, points in logged(section.rows, kind, key).items()}
        # A student's loss may be many times a single network's, whose curve would be a flat line beside it.
        alone = {row.label for row in section.of_kind("single")} if title == LOSS else set()
        apart = {label: points for label, points in lines.items() if label in alone}
        rest = {label: points for label, points in lines.items() if label not in alone}
        curves |= {f"{title}, single networks": apart, f"{title}, students": rest} if apart and rest else {title: lines}
    caption = "Means over the networks of a row. The training loss of a method is its own: compare it with itself."
    return picture("learning", "Learning curves", caption, curves, styles)


def unfinished_pictures(runs: Sequence[Unfinished]) -> list[Picture]:
    """The learning curves of runs that are still to be finished, a picture for each data set and network."""
    pictures = []
    for number, title in enumerate(dict.fromkeys(run.title for run in runs)):
        own = dict(labelled([run for run in runs if run.title == title]))
        curves: dict[str, Lines] = {}
        for name, kind, key in LEARNING:
            found = {label: as_shown(name, unfinished_curve(run, kind, key)) for label, run in own.items()}
            curves[name] = {label: points for label, points in found.items() if len(points) > 1}
        drawn = set().union(*curves.values())
        reached = [f"{label}: {run.reached:.1f} of {run.epochs} epochs" for label, run in own.items() if label in drawn]
        caption = f"As far as each run has come. {'; '.join(reached)}."
        made = picture(f"unfinished-{number}", title, caption, curves, styles_of(own.items()))
        pictures += [] if made is None else [made]
    return pictures


def diversity_picture(section: Section, styles: dict[str, Style]) -> Picture | None:
    """The paper's figure: diversity of the members on training and test images, and the student's NLL."""
    held_out = next(
        ((title, found) for title, key in HELD_OUT if (found := logged(section.rows, "diversity", key))), None
    )
    curves = {TRAIN_DIV: logged(section.rows, "diversity", "train_div")} | (
        {} if held_out is None else dict([held_out])
    )
    drawn = set().union(*curves.values())
    nll = {label: points for label, points in logged(section.rows, "val", "nll").items() if label in drawn}
    caption = "Div is the mean Kullback-Leibler divergence between the members' predictions."
    return picture("diversity", "Diversity of the members", caption, curves | {NLL: nll}, styles)


def perturbation_picture(section: Section, styles: dict[str, Style]) -> Picture | None:
    curves = {title: logged(section.rows, "perturbation", key) for title, key in CHANGES}
    caption = "How much the perturbation of the training images raises the disagreement of teachers and of members."
    return picture("perturbation", "What the perturbation changes", caption, curves, styles, columns=1)


def logged(rows: Sequence[Row], kind: str, key: str) -> Lines:
    """The curve of every row that has one; a single point is none."""
    found = {row.label: curve(row, kind, key) for row in rows}
    return {label: points for label, points in found.items() if len(points) > 1}


def as_shown(title: str, points: Points) -> Points:
    """An accuracy as an error in percent."""
    return [(x, 100 - 100 * y) for x, y in points] if title == ERROR else points


def picture(
    name: str, title: str, caption: str, curves: dict[str, Lines], styles: dict[str, Style], columns: int = 3
) -> Picture | None:
    """A panel for each title that has lines, and a legend of all that are drawn; None without any."""
    styles = {label: style.bare for label, style in styles.items()}
    panels = tuple(panel(heading, lines, styles) for heading, lines in curves.items() if lines)
    drawn = set().union(*curves.values())
    legend = tuple((label, style) for label, style in styles.items() if label in drawn)
    return Picture(name, title, caption, panels, columns, legend) if panels else None


def panel(title: str, lines: Lines, styles: dict[str, Style]) -> Panel:
    ends = "; ".join(f"{label} from {points[0][1]:.4g} to {points[-1][1]:.4g}" for label, points in lines.items())
    return Panel(title, f"{title} by epoch: {ends}.", functools.partial(draw, title, lines, styles))


def draw(title: str, lines: Lines, styles: dict[str, Style], figure: FigureBase, palette: Palette) -> None:
    axes = one_axes(figure, "epoch", title.partition(",")[0] if title.startswith(LOSS) else title)
    for label, points in lines.items():
        line(axes, palette, styles[label], [x for x, _ in points], [y for _, y in points])
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    values = [y for points in lines.values() for _, y in points]
    if not title.startswith(LOSS) and 0 < SPREAD * min(values) < max(values):
        logarithmic(axes, max(values) / min(values))
