"""Tables for corrupted test images: means over all corruptions, and each corruption separately."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from onefold.report.compare import of_paper
from onefold.report.grid import Grid, number, with_best
from onefold.report.measurements import Corrupted, Corruption
from onefold.report.table import COLUMNS, Row, Section, headings

EXTRA = ("speckle_noise", "gaussian_blur", "spatter", "saturate")  # among the benchmark's files, but not its 15
SHIFTED = COLUMNS[:3]
PUBLISHED = "published"


def measured(row: Row) -> list[Corruption]:
    """The measurements of a row's networks, all on the same images: published ones if there are any."""
    found = [a.measurements.corruption for a in row.answers if a.measurements.corruption is not None]
    found.sort(key=lambda one: PUBLISHED not in one.source)
    return [one for one in found if one.source == found[0].source]


def labelled(section: Section) -> list[tuple[str, Row, list[Corruption]]]:
    """The rows with measurements; if not all of them are on the same images, the labels say on which."""
    rows = [(row, found) for row in section.rows if (found := measured(row))]
    several = len({found[0].source for _, found in rows}) > 1
    return [(f"{row.label}: {found[0].source}" if several else row.label, row, found) for row, found in rows]


def corruption(section: Section) -> Grid:
    """Means over corruptions and severities."""
    lines = []
    sources: list[str] = []
    made_here = False
    for label, row, found in labelled(section):
        paper = of_paper(row.first, corrupted=True)
        made_here |= bool(paper) and PUBLISHED not in found[0].source
        means = [averaged(each.rows) for each in found]
        sources += [each.source for each in found]
        cells = [number([m[c.key] for m in means], c.digits, c.scale, paper.get(c.key)) for c in SHIFTED]
        lines.append((label, tuple(cells)))
    caption = f"Mean over corruptions and severities 1 to 5 ({', '.join(dict.fromkeys(sources))}). "
    caption += "The benchmark's four extra corruptions are not included in the mean."
    if made_here:
        caption += " The paper used the published images; ours were generated here, with different random numbers and "
        caption += "a different frost, so differences may be due to the images."
    titles = tuple(headings(SHIFTED))
    marked = with_best(lines, section.labels("student"), [column.better for column in SHIFTED])
    return Grid("corruption", "Corrupted test images", titles, marked, caption, other_images=made_here)


def averaged(rows: Sequence[Corrupted]) -> dict[str, float]:
    """The mean over the 15 corruptions of the benchmark; if there are none of these, over all."""
    benchmark = [row for row in rows if row.corruption not in EXTRA] or list(rows)
    return mean_of(benchmark, lambda _: True)


def by_corruption(section: Section) -> list[Grid]:
    """A table for each metric: one line per corruption, mean over the severities, with a column for each row."""
    each = [(label, found) for label, _, found in labelled(section)]
    names = list(dict.fromkeys(one.corruption for _, found in each for several in found for one in several.rows))
    tables = []
    for column in SHIFTED:
        lines = []
        for name in names:
            cells = [
                number(
                    [means[column.key] for one in found if (means := of_one(one, name))], column.digits, column.scale
                )
                for _, found in each
            ]
            lines.append((name + (" (extra)" if name in EXTRA else ""), tuple(cells)))
        title = f"{column.title} by corruption"
        caption = "Mean over severities 1 to 5."
        labels = tuple(label for label, _ in each)
        place = f"corruption-{column.key}"
        tables.append(Grid(place, title, labels, tuple(lines), caption, "corruption", folded=True))
    return tables


def of_one(one: Corruption, name: str) -> dict[str, float]:
    return mean_of(one.rows, lambda row: row.corruption == name)


def mean_of(rows: Sequence[Corrupted], chosen: Callable[[Corrupted], bool]) -> dict[str, float]:
    """The mean metrics of some rows; empty if there are none."""
    kept = [row.metrics for row in rows if chosen(row)]
    return {key: statistics.fmean(metrics[key] for metrics in kept) for key in ("acc", "nll", "ece")} if kept else {}
