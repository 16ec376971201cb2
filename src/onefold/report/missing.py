"""What a section cannot show because it was not measured, and the command that measures it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from onefold.report.answers import Answers
from onefold.report.table import Section

MANY = 8  # more folders than this are replaced in a command by the one that contains them, if possible


@dataclass(frozen=True)
class Missing:
    """What is missing, for which rows, and how to get it."""

    what: str
    who: str
    command: str = ""  # to copy
    note: str = ""  # what to do if there is no such command


MEMBERS = ("be", "latentbe")
WANTED: tuple[tuple[str, str, Callable[[Answers], bool], Callable[[Answers], object]], ...] = (
    ("corrupted images", "--corruptions", lambda a: a.kind != "single", lambda a: a.measurements.corruption),
    (
        "out-of-distribution images",
        "--ood NAME=folder:PATH",
        lambda a: a.kind != "single",
        lambda a: a.measurements.ood,
    ),
    ("the line between members", "--subspace", lambda a: a.method in MEMBERS, lambda a: a.measurements.subspace),
    ("the averaging health check", "--health", lambda a: a.method == "latentbe", lambda a: a.measurements.health),
    ("inference time", "--costs", lambda a: a.kind != "single", lambda a: a.measurements.costs or a.ms_per_image),
)


def missing(section: Section) -> list[Missing]:
    """For each measurement, the rows for which it is missing in all runs."""
    found = []
    for what, flag, concerns, measured in WANTED:
        rows = [row for row in section.rows if concerns(row.first)]
        lacking = [row for row in rows if not any(measured(answer) for answer in row.answers)]
        if lacking:
            folders = [str(answer.folder) for row in lacking for answer in row.answers]
            told = command(folders, flag, everybody=len(lacking) == len(rows))
            found.append(Missing(what, ", ".join(row.label for row in lacking), told))
    uncalibrated = [row for row in section.rows if row.after is None]
    if uncalibrated:
        who = ", ".join(row.label for row in uncalibrated)
        note = "train with a validation split (in Python, the argument val)"
        found.append(Missing("cNLL, cECE and temperature", who, note=note))
    logs = [row for row in section.rows if row.first.kind != "ensemble" and not any(a.log for a in row.answers)]
    if logs:
        who, note = ", ".join(row.label for row in logs), "metrics.jsonl is not in the folder"
        found.append(Missing("learning curves", who, note=note))
    silent = [
        row
        for row in section.rows
        if row.first.method in MEMBERS and not any("diversity" in a.logged for a in row.answers)
    ]
    if silent:
        who = ", ".join(row.label for row in silent)
        note = "to log it, distill again with --diversity-every 1"
        found.append(Missing("diversity over training", who, note=note))
    return found


def command(folders: Sequence[str], flag: str, everybody: bool) -> str:
    """The command, with all folders; if there are many, and all rows need it, with the folder that contains them."""
    folders = list(dict.fromkeys(folders))
    if everybody and len(folders) > MANY:
        folders = [os.path.commonpath(folders)]
    return f"{shlex.join(['onefold', 'evaluate', *folders])} {flag}"
