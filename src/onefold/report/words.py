"""Summarises the numbers of a section in sentences."""

from __future__ import annotations

import statistics
from fractions import Fraction

from onefold.metrics import warning_of_temperature
from onefold.report.compare import reasons
from onefold.report.costs import inference
from onefold.report.grid import Grid
from onefold.report.grids import warnings_of
from onefold.report.table import Row, Section

NEAR = 2.0  # in the paper's standard deviations
SEEN = 1e-4  # the last digit that is shown: of a smaller gain, no percentages are given
NAMES = {"cnll": "cNLL", "nll": "NLL", "acc": "accuracy"}
ORDER = ["accuracy", "NLL", "cNLL"]
ALIKE = 0.5  # of the cost in passes: measured times, which vary, are told instead if they differ by more


def sentences(section: Section, grids: list[Grid]) -> list[str]:
    """The summary: every student compared with the ensemble it learned from, and everything with the paper."""
    said: list[str] = []
    singles, ensembles, students = (section.of_kind(kind) for kind in ("single", "ensemble", "student"))
    for student in students:
        ensemble = nearest(student, [row for row in ensembles if may_have_taught(row, student)])
        single = nearest(student, singles)
        if ensemble is not None and single is not None:
            said += [told] if (told := f"{described(single)} {described(ensemble)}") not in said else []
            said.append(kept(student, ensemble, single))
        elif ensemble is not None:
            said.append(f"{student.label}: {shown(student)}; the {ensemble.label} has {shown(ensemble)}.")
        else:
            said.append(described(student))
    if not students:
        said += [described(row) for row in section.rows]
    said += against_paper(grids)
    said += reasons(section.rows)
    said += noise(section)
    said += [f"{row.label}: {warning}" for row in students for warning in warnings_of(row)]
    return said + of_temperatures(section) + of_candidates(section)


def of_temperatures(section: Section) -> list[str]:
    """Warnings about suspicious temperatures, each once, with all rows it applies to."""
    odd: dict[str, list[str]] = {}
    for row in section.rows:
        each = (warning_of_temperature(a.metrics.get("temperature"), a.metrics) for a in row.answers)
        for warning in dict.fromkeys(each):
            if warning is not None:
                odd.setdefault(warning, []).append(row.label)
    return [f"{', '.join(labels)}: {warning}" for warning, labels in odd.items()]


def of_candidates(section: Section) -> list[str]:
    """Sentences on rows whose runs chose their best weights among different epochs, which may add to their spread."""
    mixed: dict[str, list[str]] = {}
    for row in section.rows:
        rules = sorted({answer.candidates for answer in row.answers if answer.candidates is not None})
        if len(rules) > 1:
            mixed.setdefault(" or ".join(map(candidates, rules)), []).append(row.label)
    return [
        f"{', '.join(labels)}: these runs did not all choose their weights from the same epochs ({rules})."
        for rules, labels in mixed.items()
    ]


def candidates(rule: tuple[int, int]) -> str:
    every, last = rule
    if every == 1:
        return "every epoch"
    return f"every {every} epochs" + (f" and each of the last {last}" if last > 1 else "")


def described(row: Row) -> str:
    label = row.label[0].upper() + row.label[1:]
    return f"{label}: {shown(row)}."


def may_have_taught(ensemble: Row, student: Row) -> bool:
    """Whether a student learned from such teachers, as far as is known."""
    trained = student.first.trained
    return ensemble.first.members == student.first.members and trained in ({}, ensemble.first.trained)


def nearest(student: Row, rows: list[Row]) -> Row | None:
    """The row whose recipe is closest to the student's; first of all, trained in the same way as its teachers."""

    def differing(row: Row) -> tuple[bool, int]:
        ours, theirs = student.first.setting, row.first.setting
        others = row.first.trained != student.first.trained
        return others, sum(theirs[name] != value for name, value in ours.items() if name in theirs)

    return min(rows, key=differing, default=None)


def kept(student: Row, ensemble: Row, single: Row) -> str:
    """A sentence on how much of the ensemble's gain a student keeps, in likelihood and in accuracy, at what cost."""
    rows = (student, ensemble, single)
    shares = {key: share(key, *rows) for key in (likelihood(*rows), "acc")}
    parts, better, worse, nothing = list[str](), list[str](), list[str](), list[str]()
    for key, value in shares.items():
        if value is None:
            nothing.append(NAMES[key])
        elif value < 0:
            worse.append(NAMES[key])
        elif round(100 * value) > 100:
            better.append(NAMES[key])
        else:
            parts.append(f"{100 * value:.0f}% of the {NAMES[key]} gain")
    if "cnll" in shares and mean(student, "nll") - mean(single, "nll") >= SEEN:
        worse.append(NAMES["nll"])
    said = []
    if parts:
        said.append(f"keeps {' and '.join(parts)} that the {ensemble.label} has over a single network")
    if better:
        said.append(f"is better than the {ensemble.label} in {listed(better)}")
    if worse:
        said.append(f"is worse than a single network in {listed(worse)}")
    numbers = shown(student) + times(student, ensemble)
    told = f"{student.label} {', and '.join(said)}, at {cost(student, ensemble)} ({numbers})."
    if nothing:
        told = told if said else f"{student.label}: {numbers}."
        told += f" The {ensemble.label} is no better than a single network in {listed(nothing)}, so there is "
        told += "no gain to keep."
    return told


def share(key: str, student: Row, ensemble: Row, single: Row) -> float | None:
    """The share of the ensemble's gain over a single network that the student keeps; None if there is no gain."""
    ours, theirs, alone = (mean(row, key) * (-1 if key == "acc" else 1) for row in (student, ensemble, single))
    return (alone - ours) / (alone - theirs) if alone - theirs >= SEEN else None


def likelihood(*rows: Row) -> str:
    """The NLL after temperature scaling if all rows have it, because the plain NLL depends on the temperature too."""
    return "cnll" if all(row.mean("cnll") is not None for row in rows) else "nll"


def listed(names: list[str]) -> str:
    *others, last = sorted(names, key=ORDER.index)
    return f"{', '.join(others)} and {last}" if others else last


def cost(student: Row, ensemble: Row) -> str:
    """The cost of a prediction relative to the ensemble: in passes, or in time if that was measured and differs."""
    share = Fraction(student.first.passes, ensemble.first.passes)
    timed = both(student, ensemble)
    if timed is not None and abs((ratio := timed[0] / timed[1]) / share - 1) > ALIKE:
        return f"{ratio:.1f} times the ensemble's time" if ratio > 1 else f"{100 * ratio:.0f}% of the ensemble's time"
    return "the ensemble's full cost" if share == 1 else f"{share} of the cost"


def times(student: Row, ensemble: Row) -> str:
    """The measured cost, if there are measurements."""
    timed = both(student, ensemble)
    return "" if timed is None else f"; {timed[0]:.3f} ms per image vs. {timed[1]:.3f}"


def both(student: Row, ensemble: Row) -> tuple[float, float] | None:
    """Milliseconds per image of both, if they were measured on the same device."""
    ours, theirs = milliseconds(student), milliseconds(ensemble)
    return next(((ours[device], theirs[device]) for device in ours if device in theirs), None)


def milliseconds(row: Row) -> dict[str, float]:
    """Milliseconds per image by device, measured with the largest batch, or by the demo."""
    times: dict[str, list[float]] = {}
    for answer in row.answers:
        for last in inference(answer)[-1:]:
            times.setdefault(last.device, []).append(last.ms)
    by_demo = row.mean("ms")
    means = {device: statistics.fmean(each) for device, each in times.items()}
    return means or ({} if by_demo is None else {"demo": by_demo})


def against_paper(grids: list[Grid]) -> list[str]:
    alike = [grid for grid in grids if not grid.name.startswith("costs") and not grid.other_images]
    counted = [cell.in_deviations for grid in alike for _, cells in grid.rows for cell in cells]
    known = [abs(value) for value in counted if value is not None]
    if not known:
        return []
    near = sum(value <= NEAR for value in known)
    return [
        f"Of the {len(known)} results for which the paper gives a standard deviation, {near} are within {NEAR:.0f} "
        f"standard deviations of the paper's value; the median distance is {statistics.median(known):.1f}."
    ]


def noise(section: Section) -> list[str]:
    once = [row.label for row in section.of_kind("student") if row.networks == 1]
    if not once:
        return []
    return [f"One seed only: {', '.join(once)}. Differences may be noise; more seeds would show."]


def mean(row: Row, key: str) -> float:
    found = row.mean(key)
    assert found is not None, "every row has been measured"
    return found


def shown(row: Row) -> str:
    """The likelihoods and the accuracy of a row, in words."""
    numbers = {"cnll": row.mean("cnll"), "acc": mean(row, "acc"), "nll": mean(row, "nll")}
    if numbers["cnll"] is None:
        numbers = {key: numbers[key] for key in ("nll", "acc")}
    return ", ".join(
        f"{NAMES[key]} {f'{100 * value:.2f}%' if key == 'acc' else f'{value:.4f}'}"
        for key, value in numbers.items()
        if value is not None
    )
