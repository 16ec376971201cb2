"""What the numbers of a section say, in sentences."""

from __future__ import annotations

import statistics
from fractions import Fraction

from onefold.metrics import warning_of_temperature
from onefold.report.compare import reasons
from onefold.report.costs import inference
from onefold.report.grid import Grid
from onefold.report.grids import checks_of
from onefold.report.table import Row, Section

NEAR = 2.0  # of the paper's deviations
SEEN = 1e-4  # the last digit of a loss that is shown: a gain below it has no parts


def sentences(section: Section, grids: list[Grid]) -> list[str]:
    """The summary: every student against the ensemble it learnt from, and everything against the paper."""
    said: list[str] = []
    singles, ensembles, students = (section.of_kind(kind) for kind in ("single", "ensemble", "student"))
    for student in students:
        ensemble = nearest(student, [row for row in ensembles if row.first.members == student.first.members])
        single = nearest(student, singles)
        if ensemble is not None and single is not None:
            said += [told] if (told := f"{described(single)} {described(ensemble)}") not in said else []
            said.append(kept(student, ensemble, single))
        elif ensemble is not None:
            said.append(f"{student.label}: NLL {shown(student)}, against {shown(ensemble)} of the {ensemble.label}.")
        else:
            said.append(described(student))
    if not students:
        said += [described(row) for row in section.rows]
    said += against_paper(grids)
    said += reasons([answer for row in section.rows for answer in row.answers])
    said += noise(section)
    for row in students:
        warnings = dict.fromkeys(check.warning for check in checks_of(row))
        said += [f"{row.label}: {warning}" for warning in warnings if warning]
    return said + of_temperatures(section)


def of_temperatures(section: Section) -> list[str]:
    """What is odd about them, each oddity once, with the rows that have it."""
    odd: dict[str, list[str]] = {}
    for row in section.rows:
        for warning in dict.fromkeys(map(warning_of_temperature, row.values.get("temperature", []))):
            if warning is not None:
                odd.setdefault(warning, []).append(row.label)
    return [f"{', '.join(labels)}: {warning}" for warning, labels in odd.items()]


def described(row: Row) -> str:
    label = row.label[0].upper() + row.label[1:]
    return f"{label}: accuracy {percent(row)}, NLL {shown(row)}."


def nearest(student: Row, rows: list[Row]) -> Row | None:
    """Of several those that were trained as its teachers were, or whose recipe differs least from the student's."""

    def differing(row: Row) -> tuple[bool, int]:
        ours, theirs = student.first.setting, row.first.setting
        others = row.first.trained != student.first.trained
        return others, sum(theirs[name] != value for name, value in ours.items() if name in theirs)

    return min(rows, key=differing, default=None)


def kept(student: Row, ensemble: Row, single: Row) -> str:
    """How much of the ensemble's gain is left, and what it costs."""
    ours, theirs, alone = (mean(row, "nll") for row in (student, ensemble, single))
    numbers = f"accuracy {percent(student)}, NLL {ours:.4f}{times(student, ensemble)}"
    if alone - theirs < SEEN:
        return (
            f"{student.label}: {numbers}. The {ensemble.label} is no better than a single network by NLL, and there is "
            "no gain to keep."
        )
    share = (alone - ours) / (alone - theirs)
    if share < 0:
        return f"{student.label} is worse than a single network by NLL, at {cost(student, ensemble)} ({numbers})."
    percentage = f"{100 * share:.0f}%"
    part = f"all and more ({percentage})" if round(100 * share) > 100 else percentage
    return (
        f"{student.label} keeps {part} of the NLL gain that the {ensemble.label} has over a single network, at "
        f"{cost(student, ensemble)} ({numbers})."
    )


def cost(student: Row, ensemble: Row) -> str:
    """The cost of an answer, by counting networks."""
    share = Fraction(student.first.passes, ensemble.first.passes)
    return "the ensemble's full cost" if share == 1 else f"{share} of the cost"


def times(student: Row, ensemble: Row) -> str:
    """The cost as measured, where it was."""
    ours, theirs = milliseconds(student), milliseconds(ensemble)
    if ours is None or theirs is None:
        return ""
    return f"; {ours:.3f} ms an image against {theirs:.3f}"


def milliseconds(row: Row) -> float | None:
    """Measured in the largest batch, or by the demo."""
    times = [inference(answer)[-1][2] for answer in row.answers if inference(answer)]
    return statistics.fmean(times) if times else row.mean("ms")


def against_paper(grids: list[Grid]) -> list[str]:
    alike = [grid for grid in grids if not grid.name.startswith("costs") and not grid.other_images]
    counted = [cell.in_deviations for grid in alike for _, cells in grid.rows for cell in cells]
    known = [abs(value) for value in counted if value is not None]
    if not known:
        return []
    near = sum(value <= NEAR for value in known)
    return [
        f"Of {len(known)} numbers that the paper gives with a deviation, {near} are within {NEAR:.0f} of its "
        f"deviations; the median distance is {statistics.median(known):.1f}."
    ]


def noise(section: Section) -> list[str]:
    once = [row.label for row in section.of_kind("student") if row.networks == 1]
    if not once:
        return []
    return [f"One seed only: {', '.join(once)}. Differences may be noise; other seeds would tell."]


def mean(row: Row, key: str) -> float:
    found = row.mean(key)
    assert found is not None, "every row has been measured"
    return found


def shown(row: Row) -> str:
    return f"{mean(row, 'nll'):.4f}"


def percent(row: Row) -> str:
    return f"{100 * mean(row, 'acc'):.2f}%"
