"""Rows of a table: the same experiment with several seeds is one row, with mean and standard deviation."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from onefold.metrics import Reliability
from onefold.report.answers import METHODS, PERTURBATIONS, Answers
from onefold.report.measured import pooled
from onefold.report.teachers import THEIRS, TOLD, told_apart, with_teachers


@dataclass(frozen=True)
class Column:
    """How a metric is shown."""

    key: str
    title: str
    better: str  # "higher" or "lower"
    digits: int
    scale: float
    meaning: str


COLUMNS = (
    Column("acc", "ACC %", "higher", 2, 100, "accuracy: the share of test examples whose top prediction is correct"),
    Column("nll", "NLL", "lower", 4, 1, "negative log-likelihood of the correct class, mean over the test examples"),
    Column("ece", "ECE", "lower", 4, 1, "expected calibration error, 15 bins: how far confidence is from accuracy"),
    Column("cnll", "cNLL", "lower", 4, 1, "NLL with the temperature that was fitted on the validation split"),
    Column("cece", "cECE", "lower", 4, 1, "ECE with the temperature that was fitted on the validation split"),
    Column("ms", "ms/image", "lower", 3, 1, "milliseconds per image, on the machine where the run was timed"),
)


@dataclass(frozen=True, eq=False)
class Row:
    """One experiment: the values of each metric for all its networks, and their pooled bins."""

    label: str
    answers: tuple[Answers, ...]
    values: dict[str, list[float]]
    before: Reliability
    after: Reliability | None

    def mean(self, key: str) -> float | None:
        values = self.values.get(key)
        return statistics.fmean(values) if values else None

    def deviation(self, key: str) -> float | None:
        """The sample standard deviation over the networks; None for a single one."""
        values = self.values.get(key, [])
        return statistics.stdev(values) if len(values) > 1 else None

    @property
    def first(self) -> Answers:
        return self.answers[0]

    @property
    def networks(self) -> int:
        return len(self.answers)

    @property
    def examples(self) -> int:
        return self.first.examples


@dataclass(frozen=True, eq=False)
class Section:
    """The rows for one data set and network; `sizes` are the ensembles of the first 1, 2, ... teachers."""

    data: str
    network: str
    rows: tuple[Row, ...]
    sizes: tuple[Row, ...] = ()

    @property
    def title(self) -> str:
        return f"{self.data}, {self.network}"

    @property
    def examples(self) -> str:
        """How many test examples the rows are about."""
        counts = sorted({row.examples for row in self.rows})
        return f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"

    @property
    def slug(self) -> str:
        """The title in a form for file names and anchors."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns for which some row has values."""
        return tuple(column for column in COLUMNS if any(row.values.get(column.key) for row in self.rows))

    def labels(self, kind: str) -> list[str]:
        return [row.label for row in self.of_kind(kind)]

    def of_kind(self, kind: str) -> list[Row]:
        return [row for row in self.rows if row.first.kind == kind]


def sections(answers: Sequence[Answers]) -> list[Section]:
    """The networks and ensembles as tables, one for each data set and network."""
    groups: dict[tuple[object, ...], list[Answers]] = {}
    for answer in with_teachers(answers):
        groups.setdefault((answer.setting["data.source"], answer.setting["network"]), []).append(answer)
    return [
        Section(str(data), str(network), tuple(rows(chosen(told_apart(group)))), tuple(sizes(group)))
        for (data, network), group in groups.items()
    ]


def chosen(answers: Sequence[Answers]) -> list[Answers]:
    """Leaves out ensembles of only some of the teachers, unless a student learned from that many."""
    wanted = {answer.members for answer in answers if answer.kind == "student"}
    largest: dict[object, int] = {}
    for answer in answers:
        if answer.kind == "ensemble":
            largest[answer.folder] = max(answer.members, largest.get(answer.folder, 0))
    wanted.discard(1)
    return [a for a in answers if a.kind != "ensemble" or a.members in wanted or a.members == largest[a.folder]]


def sizes(answers: Sequence[Answers]) -> list[Row]:
    """Rows for the ensembles of 1, 2, ... teachers, if there are any of more than two."""
    together = [answer for answer in answers if answer.kind == "ensemble"]
    return rows(together) if max((answer.members for answer in together), default=0) > 2 else []


def rows(answers: Sequence[Answers]) -> list[Row]:
    """One row for each experiment: single networks first, then the ensemble, then the students in the paper's order."""
    groups: dict[tuple[object, ...], list[Answers]] = {}
    for answer in sorted(answers, key=place):
        key = tuple(sorted((name, repr(value)) for name, value in answer.setting.items()))
        groups.setdefault((answer.label, key), []).append(answer)
    labels = distinct([group[0] for group in groups.values()])
    return [row_of(label, group) for label, group in zip(labels, groups.values(), strict=True)]


def place(answer: Answers) -> tuple[int, int, str, int, int]:
    """The sort key of a row."""
    if answer.kind == "single":
        return -2, 0, "", 0, answer.seed
    if answer.kind == "ensemble":
        return -1, answer.members, "", 0, answer.seed
    names, known = list(METHODS), list(PERTURBATIONS)
    return (
        names.index(answer.method) if answer.method in names else len(names),
        known.index(answer.perturbation) if answer.perturbation in known else len(known),
        answer.label,
        answer.members,
        answer.seed,
    )


def distinct(firsts: Sequence[Answers]) -> list[str]:
    """Labels of rows. If several rows would have the same label, what differs is added; if the teachers were recorded
    to tell students apart, these are always added."""
    labels = []
    for answer in firsts:
        same = [other for other in firsts if other.label == answer.label]
        differing = {n for n, v in answer.setting.items() if any(o.setting.get(n) != v for o in same)}
        names = [n for n in answer.setting if n in differing or n.partition("'")[0] == TOLD]
        details = [of_setting(name, answer, same) for name in telling(names, same)]
        labels.append(f"{answer.label} ({listed(details)})" if details else answer.label)
    return labels


def listed(details: Sequence[str]) -> str:
    """Details with commas between them, and the teachers' as "teachers' A and B"."""
    shown: list[str] = []
    for detail in details:
        if detail.startswith(THEIRS) and shown and shown[-1].startswith(THEIRS):
            shown[-1] += f" and {detail.removeprefix(THEIRS)}"
        else:
            shown.append(detail)
    return ", ".join(shown)


def telling(names: Sequence[str], answers: Sequence[Answers]) -> list[str]:
    """Without the settings that say the same as another one, in a worse way."""
    kinds = {name: len({repr(answer.setting.get(name)) for answer in answers}) for name in ("layers", "parameters")}
    worse = {"layers"} if kinds["layers"] == kinds["parameters"] else set[str]()
    worse |= {"optim.lr", "optim.weight_decay"} if "optimizer" in names else set()  # None: the optimizer's own
    return [name for name in names if name not in worse]


def of_setting(name: str, answer: Answers, all_answers: Sequence[Answers]) -> str:
    """A setting as part of a label; what is known by a hash alone gets a letter instead."""
    value = answer.setting[name]
    if name == "members":
        return f"{value} teachers"
    if name in ("data", "layers") or name.startswith("own "):
        known = list(dict.fromkeys(other.setting.get(name) for other in all_answers))
        return f"{name} {letter(known.index(value))}"
    if name in ("parameters", "optimizer"):
        return f"{value:,} parameters" if isinstance(value, int) else str(value)
    return f"{name} {value}"


def letter(number: int) -> str:
    """A, B, ..., Z, A2, B2, ..."""
    return chr(ord("A") + number % 26) + (str(number // 26 + 1) if number >= 26 else "")


def row_of(label: str, answers: Sequence[Answers]) -> Row:
    values: dict[str, list[float]] = {}
    for answer in answers:
        times = {} if answer.ms_per_image is None else {"ms": answer.ms_per_image}
        for key, value in (answer.metrics | times).items():
            values.setdefault(key, []).append(value)
    after = [answer.after for answer in answers if answer.after is not None]
    every = pooled(after) if len(after) == len(answers) else None
    return Row(label, tuple(answers), values, pooled([answer.before for answer in answers]), every)


def cell(row: Row, column: Column) -> tuple[str, str]:
    """Mean and deviation as text; the deviation is empty for a single network."""
    mean, deviation = row.mean(column.key), row.deviation(column.key)
    if mean is None:
        return "–", ""
    shown = f"{mean * column.scale:.{column.digits}f}"
    return shown, "" if deviation is None else f"{deviation * column.scale:.{column.digits}f}"


def headings(columns: Iterable[Column]) -> list[str]:
    return [f"{column.title} {'↑' if column.better == 'higher' else '↓'}" for column in columns]
