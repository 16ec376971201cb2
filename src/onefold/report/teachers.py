"""Tells students of different teachers apart: they are different experiments, and their labels say so."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from onefold.report.answers import Answers, alone
from onefold.run import teachers_hash

TOLD = "teachers"  # key in the settings for what distinguishes students' teachers; or THEIRS and a field
THEIRS = f"{TOLD}' "


def with_teachers(answers: Sequence[Answers]) -> list[Answers]:
    """Fills in where the teachers of students are and how they were trained, if the report has these teachers, or other
    students of theirs that recorded it."""
    trained = [answer for answer in answers if answer.kind != "student" and answer.weights and all(answer.weights)]
    trained.sort(key=lambda answer: answer.kind == "ensemble")  # ensembles last, so that they win in the dict below
    there = {teachers_hash(answer.weights): answer for answer in trained}
    settings = {answer.taught.weights: answer.taught.setting for answer in answers if answer.taught.setting is not None}
    settings |= {weights: alone(answer.setting) for weights, answer in there.items()}
    settings.pop("", None)

    def found(answer: Answers) -> Answers:
        weights, folder, setting = answer.taught
        folder = str(there[weights].folder) if weights in there else folder
        return replace(answer, taught=answer.taught._replace(folder=folder, setting=settings.get(weights, setting)))

    return [found(answer) if answer.kind == "student" else answer for answer in answers]


def told_apart(answers: Sequence[Answers]) -> list[Answers]:
    """The answers of a section, with the teachers added to the settings of students; not if all share the same
    teachers, or if each seed has its own teachers that were trained in the same way."""
    students = [answer for answer in answers if answer.kind == "student"]
    kinds: dict[str, list[Answers]] = {}
    for student in students:
        kinds.setdefault(kind_of(student), []).append(student)
    known = [group[0].taught.setting for group in kinds.values() if group[0].taught.setting]
    names = dict.fromkeys(name for setting in known for name in setting)
    differing = [name for name in names if len({repr(setting.get(name)) for setting in known}) > 1]
    folders = named(students)

    def told(student: Answers) -> dict[str, Any]:
        group, setting = kinds[kind_of(student)], student.taught.setting
        recipe = {f"{THEIRS}{name}": setting.get(name) for name in differing} if setting else {}
        if not one_each(group):
            return recipe | {TOLD: folders[student.taught.weights]}
        if recipe or len({kind_of(other) for other in students if other.members == student.members}) == 1:
            return recipe
        row = [other for other in group if (other.label, other.setting) == (student.label, student.setting)]
        return {TOLD: ", ".join(dict.fromkeys(folders[other.taught.weights] for other in row))}

    return [replace(a, setting=a.setting | told(a)) if a.kind == "student" else a for a in answers]


def kind_of(student: Answers) -> str:
    """Equal for students whose teachers were trained in the same way; if that is unknown, for the same teachers."""
    setting = student.taught.setting
    return repr(sorted(setting.items())) if setting else f"{student.members} {student.taught.weights}"


def one_each(students: Sequence[Answers]) -> bool:
    """Whether students with the same seed and number of teachers always share the same teachers."""
    pairs = {(student.members, student.seed, student.taught.weights) for student in students}
    return len({pair[:2] for pair in pairs}) == len(pairs)


def named(students: Sequence[Answers]) -> dict[str, str]:
    """Names for teachers, by the hash of their weights: their folder, as short as possible; if that is ambiguous or
    unknown, their first student."""
    firsts = {student.taught.weights: student for student in reversed(students)}
    places = {weights: placed(first.taught.folder) for weights, first in firsts.items() if first.taught.folder}
    called = Counter((firsts[weights].members, place) for weights, place in places.items())
    places = {w: place for w, place in places.items() if called[firsts[w].members, place] == 1}
    short = shortened(places.values())
    own = shortened(str(student.folder) for student in students)
    return {w: short[places[w]] if w in places else f"of {own[str(first.folder)]}" for w, first in firsts.items()}


def placed(folder: str) -> str:
    """The absolute path of a folder, if it exists, so that it has only one name."""
    return os.path.abspath(folder) if os.path.isdir(folder) else str(PurePath(folder))


def shortened(places: Iterable[str]) -> dict[str, str]:
    """The shortest endings of some paths that tell them apart."""
    parts = {place: PurePath(place).parts for place in places}
    for count in range(1, max(map(len, parts.values()), default=0)):
        ends = {place: str(PurePath(*all_of_it[-count:])) for place, all_of_it in parts.items()}
        if len({*ends.values()}) == len(ends):
            return ends
    return {place: place for place in parts}
