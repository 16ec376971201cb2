"""Rows of a table: the same experiment under several seeds is one row, mean and deviation."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from onefold.metrics import Classification, Reliability
from onefold.report.runs import METHODS, PERTURBATIONS, Answers


@dataclass(frozen=True)
class Column:
    """A metric as it is shown."""

    key: str
    title: str
    better: str  # "higher" or "lower"
    digits: int
    scale: float
    meaning: str


COLUMNS = (
    Column("acc", "ACC %", "higher", 2, 100, "accuracy: the share of test images whose most probable class is right"),
    Column("nll", "NLL", "lower", 4, 1, "negative log-likelihood of the right class, mean over the test images"),
    Column("ece", "ECE", "lower", 4, 1, "expected calibration error, 15 bins: how far confidence is from accuracy"),
    Column("cnll", "cNLL", "lower", 4, 1, "NLL after one temperature was fitted to the validation split"),
    Column("cece", "cECE", "lower", 4, 1, "ECE after one temperature was fitted to the validation split"),
    Column("ms", "ms/image", "lower", 3, 1, "milliseconds an image on the machine the run was timed on"),
)


@dataclass(frozen=True, eq=False)
class Row:
    """One experiment: a value of each metric for every network of it, and their bins together."""

    label: str
    answers: tuple[Answers, ...]
    values: dict[str, list[float]]
    reliability: Reliability

    def mean(self, key: str) -> float | None:
        values = self.values.get(key)
        return statistics.fmean(values) if values else None

    def deviation(self, key: str) -> float | None:
        """The sample standard deviation over the networks; None of a single one."""
        values = self.values.get(key, [])
        return statistics.stdev(values) if len(values) > 1 else None

    @property
    def networks(self) -> int:
        return len(self.answers)

    @property
    def examples(self) -> int:
        return len(self.answers[0].test[1])


@dataclass(frozen=True, eq=False)
class Section:
    """The rows of one data set and network."""

    data: str
    network: str
    rows: tuple[Row, ...]

    @property
    def title(self) -> str:
        return f"{self.data}, {self.network}"

    @property
    def columns(self) -> tuple[Column, ...]:
        """Those that some row has."""
        return tuple(column for column in COLUMNS if any(row.values.get(column.key) for row in self.rows))


def sections(answers: Sequence[Answers]) -> list[Section]:
    """The answers as tables, one for each data set and network."""
    groups: dict[tuple[str, str], list[Answers]] = {}
    for answer in answers:
        groups.setdefault((answer.setting["data.source"], answer.setting["network"]), []).append(answer)
    return [Section(data, network, tuple(rows(group))) for (data, network), group in groups.items()]


def rows(answers: Sequence[Answers]) -> list[Row]:
    """One row for each experiment: single networks first, then the ensemble, then the students in the paper's order."""
    groups: dict[tuple[object, ...], list[Answers]] = {}
    for answer in sorted(answers, key=place):
        groups.setdefault((answer.label, *answer.setting.items()), []).append(answer)
    labels = distinct([group[0] for group in groups.values()])
    return [row_of(label, group) for label, group in zip(labels, groups.values(), strict=True)]


def place(answer: Answers) -> tuple[int, int, str]:
    """Where a row stands."""
    if answer.label == "single network":
        return -2, 0, ""
    if answer.label.startswith("ensemble"):
        return -1, int(answer.setting["members"]), ""
    names = list(METHODS)
    method, perturbation = answer.setting["distill.method"], answer.setting["distill.perturbation"]
    known = list(PERTURBATIONS)
    return (
        names.index(method) if method in names else len(names),
        known.index(perturbation) if perturbation in known else len(known),
        answer.label,
    )


def distinct(firsts: Sequence[Answers]) -> list[str]:
    """Labels; rows that would have the same one say what differs between them."""
    labels = []
    for answer in firsts:
        same = [other for other in firsts if other.label == answer.label]
        differing = [name for name, value in answer.setting.items() if any(o.setting[name] != value for o in same)]
        detail = ", ".join(f"{name} {answer.setting[name]}" for name in differing)
        labels.append(f"{answer.label} ({detail})" if detail else answer.label)
    return labels


def row_of(label: str, answers: Sequence[Answers]) -> Row:
    values: dict[str, list[float]] = {}
    pooled = Classification(answers[0].test[0].shape[-1])
    for answer in answers:
        measured = answer.metrics()
        if answer.ms_per_image is not None:
            measured["ms"] = answer.ms_per_image
        for key, value in measured.items():
            values.setdefault(key, []).append(value)
        pooled.update(*answer.test)
    return Row(label, tuple(answers), values, pooled.reliability())


def cell(row: Row, column: Column) -> tuple[str, str]:
    """Mean and deviation as text; an empty deviation where there are not several networks."""
    mean, deviation = row.mean(column.key), row.deviation(column.key)
    if mean is None:
        return "–", ""
    shown = f"{mean * column.scale:.{column.digits}f}"
    return shown, "" if deviation is None else f"{deviation * column.scale:.{column.digits}f}"


def headings(columns: Iterable[Column]) -> list[str]:
    return [f"{column.title} {'↑' if column.better == 'higher' else '↓'}" for column in columns]
