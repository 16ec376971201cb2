"""Tables of the measurements stored in run folders."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from onefold.cli.tables import deviations, grid_table
from onefold.engine.measure.measure import Wanted
from onefold.engine.measure.progress import Failure
from onefold.report import Answers, Grid, Row, Section, collect, grids, sections
from onefold.report.grid import Number, number
from onefold.report.grids import SPLITS, checks_of, warnings_of
from onefold.report.measurements import Measurements, Subspace
from onefold.terminal import say

AUROC = "AUROC"
# The fields of a run's measurements, by the names of the measurements.
FIELDS = {"corruption": "corruption", "costs": "costs", "health": "health", "subspace": "subspace"}
FIELDS |= {"out of distribution": "ood"}
PLACES = {0.0: "at one member", 0.5: "halfway", 1.0: "at the other"}  # on the line through two members


def show_measured(
    folders: Sequence[Path],
    wanted: Wanted,
    out: Console,
    failed: Sequence[Failure] = (),
    refused: Collection[Path] = (),
) -> None:
    """Prints the measurements that were asked for, and the verdict of the health check. What failed now is not shown,
    even if there is an earlier result."""
    answers, notes = collect(folders)
    found = sections([without(answer, failed, refused) for answer in answers])
    left = [folder for folder in folders if folder not in refused]
    ended = {what for what in FIELDS if not {*left} - {one.path for one in failed if one.what == what and not one.part}}
    for section in found:
        tables = list(asked(section, wanted, ended))
        for grid in tables:
            out.print(grid_table(grid, out.width, section.title if len(found) > 1 else ""))
        if any(cell.spread for grid in tables for _, numbers in grid.rows for cell in numbers):
            say(deviations(section))
        if (wanted.health or wanted.everything) and "health" not in ended:
            for sentence in verdicts(section):
                say(sentence)
    if not found:
        for note in notes:
            say(note)


def without(answer: Answers, failed: Sequence[Failure], refused: Collection[Path]) -> Answers:
    """The answers without the measurements that failed; those of a folder of teachers are also of each teacher."""

    def is_in(folder: Path) -> bool:
        return any(folder.resolve() in (path, path.parent) for path in answer.paths)

    kept = Measurements() if any(is_in(folder) for folder in refused) else answer.measurements
    for one in failed:
        if is_in(one.path) and not one.part:
            gone: dict[str, Any] = {FIELDS[one.what]: None}
            kept = dataclasses.replace(kept, **gone)
        elif is_in(one.path) and kept.ood is not None:
            sets = tuple(each for each in kept.ood.sets if each.name != one.part)
            kept = dataclasses.replace(kept, ood=dataclasses.replace(kept.ood, sets=sets))
    return dataclasses.replace(answer, measurements=kept)


def asked(section: Section, wanted: Wanted, ended: Collection[str] = ()) -> Iterator[Grid]:
    """The report's tables of the measurements that were asked for, without the large ones; `ended` are those that
    failed everywhere."""
    every = wanted.everything
    choices = {"health": wanted.health, "costs": wanted.costs, "costs-inference": wanted.costs}
    choices |= {"corruption": wanted.corrupted_images}
    made = {grid.name: grid for grid in grids(section)}
    shown = [name for name, chosen in choices.items() if (chosen or every) and name.partition("-")[0] not in ended]
    yield from (made[name] for name in shown if name in made)
    if wanted.ood and "ood-all" in made and (found := areas(made["ood-all"], list(wanted.ood))).rows:
        yield found
    if (wanted.subspace or every) and (line := along(section)).rows:
        yield line


def areas(grid: Grid, names: Sequence[str]) -> Grid:
    """Only the AUROC columns of the out-of-distribution table, and only the data sets with these names."""
    kept = [k for k, heading in enumerate(grid.headings) if heading.startswith(AUROC)]
    rows = tuple(
        (label, tuple(numbers[k] for k in kept))
        for label, numbers in grid.rows
        if any(label.endswith(f": {name}") for name in names)
    )
    return Grid(grid.name, "Out of distribution", tuple(grid.headings[k] for k in kept), rows, first=grid.first)


def along(section: Section) -> Grid:
    """NLL on the line through two members, and of the average of all of them."""
    lines = []
    for row in section.rows:
        found = [a.measurements.subspace for a in row.answers if a.measurements.subspace is not None]
        if found:
            places = [number([value for one in found for value in nll_at(one, t)]) for t in PLACES]
            lines.append((row.label, (*places, averaged(found))))
    titles = tuple(f"{place} ↓" for place in (*PLACES.values(), "average of all"))
    few = {(one.counts["test"], row.examples) for row, one in measured_lines(section) if "test" in one.counts}
    used = ", ".join(f"{count:,} of {every:,} " for count, every in sorted(few) if count < every)
    return Grid("subspace", f"NLL on the line through two members, on {used}test images", titles, tuple(lines))


def measured_lines(section: Section) -> list[tuple[Row, Subspace]]:
    return [(row, a.measurements.subspace) for row in section.rows for a in row.answers if a.measurements.subspace]


def nll_at(line: Subspace, t: float) -> list[float]:
    """The NLL at a point of each measured line on test images; empty if that point was not measured."""
    curves = [curve for curve in line.curves if curve.split == "test" and not curve.reestimated]
    return [nll for curve in curves for at, nll in zip(line.t, curve.nll, strict=True) if abs(at - t) < 1e-9]


def averaged(found: Sequence[Subspace]) -> Number:
    return number([one.average["test"]["nll"] for one in found if "test" in one.average])


def verdicts(section: Section) -> list[str]:
    """For each row of networks that were averaged, whether averaging hurt."""
    return [said for row in section.rows if row.first.passes == 1 for said in verdict(row)]


def verdict(row: Row) -> list[str]:
    checks, warnings = checks_of(row), warnings_of(row)
    if not checks or warnings:
        return [f"{row.label}: {warning}" for warning in warnings]
    split = SPLITS.get(checks[0].split, checks[0].split)
    return [f"{row.label}: averaging the members does not hurt on {split}"]
