"""What a section does not show because nobody has measured it, and the command that would."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from onefold.report.answers import Answers
from onefold.report.table import Section

MANY = 8  # folders that are written out in a command, if the one that holds them would do


@dataclass(frozen=True)
class Missing:
    """What is missing, of whom, and how to get it."""

    what: str
    who: str
    command: str = ""  # that can be copied
    note: str = ""  # where no command does


MEMBERS = ("be", "latentbe")
WANTED: tuple[tuple[str, str, Callable[[Answers], bool], Callable[[Answers], object]], ...] = (
    ("corrupted images", "--corruptions", lambda a: a.kind != "single", lambda a: a.measurements.corruption),
    ("other distributions", "--ood svhn=svhn", lambda a: a.kind != "single", lambda a: a.measurements.ood),
    ("the line between members", "--subspace", lambda a: a.method in MEMBERS, lambda a: a.measurements.subspace),
    ("the averaging health check", "--health", lambda a: a.method == "latentbe", lambda a: a.measurements.health),
    ("inference time", "--costs", lambda a: a.kind != "single", lambda a: a.measurements.costs or a.ms_per_image),
)


def missing(section: Section) -> list[Missing]:
    """By measurement, the rows that lack it altogether."""
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
        note = "train with a validation split; in Python it is the argument val"
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
        note = "distill again with --diversity-every 1, which logs it"
        found.append(Missing("diversity over training", who, note=note))
    return found


def command(folders: Sequence[str], flag: str, everybody: bool) -> str:
    """With all folders; or, where they are many and nobody would be measured twice, with the one that holds them."""
    folders = list(dict.fromkeys(folders))
    if everybody and len(folders) > MANY:
        folders = [os.path.commonpath(folders)]
    return f"{shlex.join(['onefold', 'evaluate', *folders])} {flag}"
