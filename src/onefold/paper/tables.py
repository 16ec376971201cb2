"""Every number of the paper's tables, in the paper's words."""

from __future__ import annotations

import csv
import functools
from dataclasses import dataclass
from importlib.resources import files

TABLES = ("cifar10", "cifar100", "ablation", "corrupted", "baselines", "tinyimagenet", "imagenet", "costs")


@dataclass(frozen=True)
class Entry:
    """One number: accuracy in percent, the deviation over seeds where the paper gives one."""

    table: str
    dataset: str
    network: str
    teacher: str  # DE-4, or empty where the paper names none
    forward_passes: str  # "single", "multiple", or empty where a table does not say
    method: str
    metric: str  # ACC, NLL, ECE, cNLL, cECE, train_hours_rtx3090, inference_ms_per_image_rtx3090
    mean: float
    std: float | None


@functools.cache
def entries() -> tuple[Entry, ...]:
    """All of them, in the order of the file."""
    lines = files("onefold.paper").joinpath("tables.csv").read_text(encoding="utf-8").splitlines()
    return tuple(
        Entry(table, dataset, network, teacher, passes, method, metric, float(mean), float(std) if std else None)
        for table, dataset, network, teacher, passes, method, metric, mean, std in csv.reader(lines[1:])
    )


def found(
    dataset: str, network: str, method: str, teacher: str | None = None, table: str | None = None
) -> dict[str, Entry]:
    """The numbers of one row by metric; of the first table that has it, where no table is named."""
    rows = [
        entry
        for entry in entries()
        if (entry.dataset, entry.network, entry.method) == (dataset, network, method)
        and (teacher is None or entry.teacher == teacher)
        and (table is None or entry.table == table)
    ]
    return {entry.metric: entry for entry in rows if entry.table == rows[0].table and entry.teacher == rows[0].teacher}
