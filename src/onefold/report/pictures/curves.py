"""Curves over the epochs of training: losses and metrics, diversity, and what perturbations change."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Mapping, Sequence

from matplotlib.figure import FigureBase
from matplotlib.ticker import MaxNLocator

from onefold.report.answers import METHODS
from onefold.report.logs import Points, curve
from onefold.report.pictures.axes import line, logarithmic, one_axes
from onefold.report.pictures.picture import SIZES, Palette, Panel, Picture
from onefold.report.pictures.style import Drawn, Style, styles_of
from onefold.report.table import Row, Section
from onefold.report.unfinished import Unfinished, labelled
from onefold.report.unfinished import curve as unfinished_curve

Lines = dict[str, Points]
LOSS, ERROR, NLL = "training loss", "validation error, %", "validation NLL"
COMPARED = ((ERROR, "val", "acc"), (NLL, "val", "nll"))
TRAIN_DIV, HELD_OUT = (
    "Div on training images",
    (("Div on test images", "test_div"), ("Div on validation images", "val_div")),
)
CHANGES = (("change in TDiv", "tdiv_change"), ("change in SDiv", "sdiv_change"))
LOGARITHMIC = {ERROR, NLL, TRAIN_DIV, *(title for title, _ in HELD_OUT)}  # only this separates their final values
WINDOW = 5  # points of the running median
PALE = 0.15  # opacity of the unsmoothed curve behind it
SMOOTHED = f"Lines are running medians over {WINDOW} points; the pale lines behind them are the logged values."


def learning_picture(section: Section, styles: dict[str, Style]) -> Picture | None:
    """Training losses of different methods cannot be compared, so they get separate panels, or none."""
    losses = by_method(logged(section.rows, "train", "loss"), {row.label: row.first for row in section.rows})
    curves = {title: as_shown(title, logged(section.rows, kind, key)) for title, kind, key in COMPARED}
    caption = f"Means over the networks of a row. {SMOOTHED} "
    if len(losses) > 2 and any(curves.values()):
        losses = {}
        caption += "Training losses are omitted, because each method minimises a different loss and the values are not "
        caption += "comparable. They are in the metrics.jsonl of each run."
    else:
        caption += "Each method minimises a different loss: training losses of different methods are not comparable."
    return picture("learning", "Learning curves", caption, losses | curves, styles)


def unfinished_pictures(runs: Sequence[Unfinished]) -> list[Picture]:
    """The learning curves of unfinished runs, a picture for each data set and network."""
    pictures = []
    for number, title in enumerate(dict.fromkeys(run.title for run in runs)):
        own = dict(labelled([run for run in runs if run.title == title]))
        curves: dict[str, Lines] = by_method(going(own, "train", "loss"), own)
        curves |= {name: as_shown(name, going(own, kind, key)) for name, kind, key in COMPARED}
        drawn = set().union(*curves.values())
        reached = [f"{label}: {run.reached:.1f} of {run.epochs} epochs" for label, run in own.items() if label in drawn]
        caption = f"Progress so far. {'; '.join(reached)}. {SMOOTHED}"
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
    caption = f"Div is the mean Kullback-Leibler divergence between the members' predictions. {SMOOTHED}"
    return picture("diversity", "Diversity of the members", caption, curves | {NLL: nll}, styles)


def perturbation_picture(section: Section, styles: dict[str, Style]) -> Picture | None:
    curves = {title: logged(section.rows, "perturbation", key) for title, key in CHANGES}
    caption = "How much perturbing the training images increases the diversity of the teachers, and of the members. "
    return picture("perturbation", "What the perturbation changes", caption + SMOOTHED, curves, styles)


def logged(rows: Sequence[Row], kind: str, key: str) -> Lines:
    """The curve of every row that has one of at least two points."""
    found = {row.label: curve(row, kind, key) for row in rows}
    return {label: points for label, points in found.items() if len(points) > 1}


def going(runs: Mapping[str, Unfinished], kind: str, key: str) -> Lines:
    found = {label: unfinished_curve(run, kind, key) for label, run in runs.items()}
    return {label: points for label, points in found.items() if len(points) > 1}


def by_method(lines: Lines, rows: Mapping[str, Drawn]) -> dict[str, Lines]:
    """Training losses, with a panel for each method and one for single networks, whose loss is the cross-entropy."""
    found: dict[str, Lines] = {}
    for label, points in lines.items():
        one = rows[label]
        name = "single networks" if one.kind == "single" else METHODS.get(one.method, one.method)
        found.setdefault(f"{LOSS}, {name}", {})[label] = points
    return found if len(found) != 1 else {LOSS: lines}


def as_shown(title: str, lines: Lines) -> Lines:
    """Converts accuracies to errors in percent."""
    if title != ERROR:
        return lines
    return {label: [(x, 100 - 100 * y) for x, y in points] for label, points in lines.items()}


def picture(name: str, title: str, caption: str, curves: dict[str, Lines], styles: dict[str, Style]) -> Picture | None:
    """A panel for each title that has lines, with a legend of all lines; None if there are none."""
    styles = {label: style.bare for label, style in styles.items()}
    titled = [(heading, lines) for heading, lines in curves.items() if lines]
    columns = 2 if len(titled) in (1, 2, 4) else 3
    panels = tuple(panel(heading, lines, styles, SIZES[columns]) for heading, lines in titled)
    drawn = set().union(*curves.values())
    legend = tuple((label, style) for label, style in styles.items() if label in drawn)
    return Picture(name, title, caption, panels, columns, legend) if panels else None


def panel(title: str, lines: Lines, styles: dict[str, Style], size: tuple[float, float]) -> Panel:
    ends = "; ".join(f"{label} from {points[0][1]:.4g} to {points[-1][1]:.4g}" for label, points in lines.items())
    return Panel(title, f"{title} by epoch: {ends}.", functools.partial(draw, title, lines, styles), size)


def draw(title: str, lines: Lines, styles: dict[str, Style], figure: FigureBase, palette: Palette) -> None:
    values = [y for points in lines.values() for _, y in points]
    log = title in LOGARITHMIC and min(values) > 0
    axes = one_axes(figure, "epoch", title.partition(",")[0] if title.startswith(LOSS) else title)
    for label, points in lines.items():
        if len(points) > WINDOW:
            line(axes, palette, styles[label], *split(points), linewidth=1, linestyle="-", alpha=PALE, zorder=1)
        line(axes, palette, styles[label], *split(smoothed(points)))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    if log:
        axes.set_ylabel(f"{title}, log")
        logarithmic(axes, max(values) / min(values))


def smoothed(points: Points) -> Points:
    """A running median, over fewer points near the ends, so that the first and the last value are kept."""
    count = len(points)
    if count <= WINDOW:
        return points
    halves = [min(WINDOW // 2, k, count - 1 - k) for k in range(count)]
    return [
        (points[k][0], statistics.median(y for _, y in points[k - half : k + half + 1]))
        for k, half in enumerate(halves)
    ]


def split(points: Points) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]
