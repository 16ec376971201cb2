"""All numbers in the paper's tables, with the paper's own names."""

from __future__ import annotations

import csv
import functools
from dataclasses import dataclass
from importlib.resources import files

TABLES = ("cifar10", "cifar100", "ablation", "corrupted", "baselines", "tinyimagenet", "imagenet", "costs")


@dataclass(frozen=True)
class Entry:
    """One number, accuracies in percent, with its standard deviation over seeds if the paper gives one."""

    table: str
    dataset: str
    network: str
    teacher: str  # DE-4, or empty if the paper names none
    forward_passes: str  # "single", "multiple", or empty if the table does not say
    method: str
    metric: str  # ACC, NLL, ECE, cNLL, cECE, train_hours_rtx3090, inference_ms_per_image_rtx3090
    mean: float
    std: float | None


@functools.cache
def entries() -> tuple[Entry, ...]:
    """All numbers, in the order of the file."""
    lines = files("onefold.paper").joinpath("tables.csv").read_text(encoding="utf-8").splitlines()
    return tuple(entry(*fields) for fields in csv.reader(lines[1:]))


def entry(
    table: str, dataset: str, network: str, teacher: str, passes: str, method: str, metric: str, mean: str, std: str
) -> Entry:
    """Parses a line of the file."""
    deviation = float(std) if std else None
    return Entry(table, dataset, network, teacher, passes, method, metric, float(mean), deviation)


def found(
    dataset: str, network: str, method: str, teacher: str | None = None, table: str | None = None
) -> dict[str, Entry]:
    """The numbers of one row, by metric; if no table is given, from the first one that has the row."""
    rows = [
        e
        for e in entries()
        if (e.dataset, e.network, e.method) == (dataset, network, method)
        and (teacher is None or e.teacher == teacher)
        and (table is None or e.table == table)
    ]
    return {e.metric: e for e in rows if e.table == rows[0].table and e.teacher == rows[0].teacher}
