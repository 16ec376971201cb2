"""The tables of a section: results, ensembles by size, corruption, other distributions, averaging, run time."""

from __future__ import annotations

from collections.abc import Iterable

from onefold.report.compare import of_paper
from onefold.report.corrupted import SHIFTED, by_corruption, corruption
from onefold.report.costs import costs
from onefold.report.grid import Grid, Number, number, with_best
from onefold.report.measurements import Health
from onefold.report.table import Column, Row, Section, headings

COMPACT = " Computed from compact predictions, which change these metrics by less than 0.00005."


def grids(section: Section) -> list[Grid]:
    """All tables that are not empty."""
    made = [results(section), by_size(section), corruption(section), *by_corruption(section)]
    made += [*ood(section), health(section), *costs(section)]
    return [grid for grid in made if grid is not None and grid.rows]


def results(section: Section) -> Grid:
    caption = f"{section.examples} test examples."
    if max(row.networks for row in section.rows) > 1:
        caption += " Mean and standard deviation over the networks of a row."
    if any(answer.compact for row in section.rows for answer in row.answers):
        caption += COMPACT
    lines = [(row.label, metrics_of(row, section.columns)) for row in section.rows]
    marked = with_best(lines, section.labels("student"), [column.better for column in section.columns])
    return Grid("results", "Results", tuple(headings(section.columns)), marked, caption)


def metrics_of(row: Row, columns: Iterable[Column]) -> tuple[Number, ...]:
    paper = of_paper(row.first)
    return tuple(number(row.values.get(c.key, []), c.digits, c.scale, paper.get(c.key)) for c in columns)


def by_size(section: Section) -> Grid:
    columns = section.columns[:5]
    lines = [(row.label, metrics_of(row, columns)) for row in section.sizes]
    return Grid(
        "ensembles",
        "Ensembles of the first teachers",
        tuple(headings(columns)),
        tuple(lines),
        "How much each additional teacher adds (the paper's DE-1, DE-2, ...).",
    )


def ood(section: Section) -> list[Grid]:
    """How well entropy and confidence detect other distributions: a short table with AUROC, and a full one."""
    scores = {"entropy": "entropy", "max_probability": "max. p"}
    measures = {"auroc": ("AUROC", "↑"), "aupr": ("AUPR", "↑"), "fpr95": ("FPR95", "↓")}
    measured = [[a.measurements.ood for a in row.answers if a.measurements.ood is not None] for row in section.rows]
    names = dict.fromkeys(each.name for row in measured for one in row for each in one.sets)  # same order in all rows
    brief, lines = [], []
    for row, of_row in zip(section.rows, measured, strict=True):
        found = {name: [each.scores for one in of_row for each in one.sets if each.name == name] for name in names}
        if any(found.values()):
            auroc = [[score["entropy"]["auroc"] for score in of_set if "entropy" in score] for of_set in found.values()]
            brief.append((row.label, tuple(map(number, auroc))))
        for name, of_set in found.items():
            cells = [
                number([each[score][key] for each in of_set if score in each]) for score in scores for key in measures
            ]
            lines += [(f"{row.label}: {name}", tuple(cells))] if of_set else []
    titles = tuple(f"{title} {arrow} {score}" for score in scores.values() for title, arrow in measures.values())
    short = "AUROC of the predictive entropy for telling out-of-distribution images from test images."
    caption = "How well the predictive entropy and the maximum probability tell out-of-distribution images from test "
    caption += "images. AUPR counts out-of-distribution images as positives. FPR95: the share of out-of-distribution "
    caption += "images that are accepted at the threshold that accepts 95% of the test images."
    marked = with_best(brief, section.labels("student"), ["higher"] * len(names))
    return [
        Grid("ood", "Out of distribution", tuple(f"{name} ↑" for name in names), marked, short),
        Grid(
            "ood-all",
            "Out of distribution, all scores",
            titles,
            tuple(lines),
            caption,
            "network: images",
            folded=True,
        ),
    ]


def health(section: Section) -> Grid:
    lines = []
    splits: list[str] = []
    for row in section.rows:
        checks = checks_of(row)
        splits += [SPLITS.get(check.split, check.split) for check in checks]
        for name in dict.fromkeys(name for check in checks for name, _ in check.rows):
            found = [metrics for check in checks for each, metrics in check.rows if each == name]
            cells = tuple(number([m[c.key] for m in found], c.digits, c.scale) for c in SHIFTED)
            lines.append((f"{row.label}: {name}", cells))
    caption = "Whether averaging the members hurts: each member, the members together, and the averaged network, as it "
    caption += f"is and with re-estimated BatchNorm statistics, on {' or '.join(dict.fromkeys(splits))}."
    titles = tuple(headings(SHIFTED))
    return Grid("health", "Averaging health check", titles, tuple(lines), caption, "network", folded=True)


SPLITS = {"test": "the test split", "val": "the validation split", "train": "training images"}


def warnings_of(row: Row) -> list[str]:
    """The warnings of a row's checks; of networks with the same problem, only the first one's."""
    kinds: dict[str, list[str]] = {}
    for check in checks_of(row):
        if check.warning:
            kinds.setdefault(check.warning.partition(":")[0], []).append(check.warning)
    return [
        each[0] + (f" (this network and {len(each) - 1} more of {row.networks})" if len(each) > 1 else "")
        for each in kinds.values()
    ]


def checks_of(row: Row) -> list[Health]:
    """The checks of a row that were made on the test split, if any, else all of them."""
    found = [a.measurements.health for a in row.answers if a.measurements.health is not None]
    return [check for check in found if check.split == "test"] or found
