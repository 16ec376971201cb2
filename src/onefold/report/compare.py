"""The paper's numbers for a row, if its recipe is one of the paper's."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from onefold.paper import Entry, found
from onefold.recipe import Recipe, leaves
from onefold.recipes import cifar10, cifar100, imagenet, tiny_imagenet_r18, tiny_imagenet_wrn
from onefold.report.answers import Answers
from onefold.report.runs import REPEATED
from onefold.report.table import Row

DATA = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "tiny-imagenet": "TinyImageNet", "imagenet": "ImageNet-1k"}
NETWORKS = {"wrn28x1": "WRN28x1", "wrn28x4": "WRN28x4", "resnet18-small": "R18", "resnet50": "R50"}
STUDENTS = {"kd": "KD", "aekd": "AE-KD", "proxy-end2": "Proxy-EnD2", "be": "KD + BE", "latentbe": "KD + LatentBE"}
PERTURBED = {"none": "", "confods": " + ConfODS", "tdiv": " + TDiv", "tdiv-sdiv": " + TDiv-SDiv"}
Named = tuple[str, str | None]
METRICS = {"acc": "ACC", "nll": "NLL", "ece": "ECE", "cnll": "cNLL", "cece": "cECE"}
# Fields that may differ from the paper's recipe: those that the paper itself varies, and those on how it is computed.
FREE = REPEATED | {"members", "precision", "data.skip_unreadable", "distill.method", "distill.perturbation"}


@functools.cache
def recipes() -> dict[tuple[str, str], Recipe]:
    """The paper's recipes, by data set and network."""
    made = [make() for make in (cifar10, cifar100, tiny_imagenet_r18, tiny_imagenet_wrn, imagenet)]
    return {(recipe.data.source, recipe.network): recipe for recipe in made}


def departures(answer: Answers) -> list[str] | None:
    """What a run, or the training of its teachers, does differently from the paper; None if the paper does not have
    this data set and network."""
    recipe = recipes().get((str(answer.setting["data.source"]), str(answer.setting["network"])))
    if recipe is None:
        return None
    wanted = {name: value for name, value in leaves(recipe).items() if name not in FREE}
    if answer.method != "aekd":
        wanted.pop("distill.cap")
    taught = answer.taught.setting or {}
    return [
        f"{whose}{name} is {setting[name]} (paper: {value})"
        for whose, setting in (("", answer.setting), ("teachers' ", taught))
        for name, value in wanted.items()
        if name in setting and setting[name] != value
    ]


def of_paper(answer: Answers, corrupted: bool = False, table: str | None = None) -> dict[str, Entry]:
    """The paper's numbers for such a network, by our names of the metrics; empty if it has none."""
    if departures(answer) != []:
        return {}
    named = names(answer.kind, answer.method, answer.perturbation, answer.members)
    return in_paper(str(answer.setting["data.source"]), str(answer.setting["network"]), named, corrupted, table)


def in_paper(
    source: str, network: str, named: list[Named], corrupted: bool = False, table: str | None = None
) -> dict[str, Entry]:
    """The numbers of the first row in the paper with one of these names, by our names of the metrics."""
    data = DATA[source] + ("-C" if corrupted else "")
    rows: dict[str, Entry] = {}
    for name, asked in named:
        rows = rows or found(data, NETWORKS[network], name, asked, table)
    names_of = {paper: ours for ours, paper in METRICS.items()} | {"inference_ms_per_image_rtx3090": "ms"}
    names_of["train_hours_rtx3090"] = "hours"
    return {names_of[metric]: entry for metric, entry in rows.items()}


def names(kind: str, method: str, perturbation: str, members: int) -> list[Named]:
    """The names that the paper may use for a network, each with the name it gives for the teacher."""
    if kind == "single":
        return [("Base (w/o distillation)", None)]
    if kind == "ensemble":
        return [(f"DE-{members}", None), (f"DE-{members} teacher", None)]
    if (method, perturbation, members) == ("kd", "none", 1):
        return [("Single KD", None)]
    if method not in STUDENTS or perturbation not in PERTURBED:
        return []
    perturbed, teacher = PERTURBED[perturbation], f"DE-{members}"
    called: list[Named] = [(STUDENTS[method] + perturbed, teacher)]
    if method == "latentbe":
        called.append((f"LatentBE-{members}{perturbed}", teacher))
    return called


def units(mean: float, entry: Entry) -> float | None:
    """How far a mean is from the paper's, in the paper's standard deviations; None if it gives none, or zero."""
    return (mean - entry.mean) / entry.std if entry.std else None


def reasons(rows: Sequence[Row]) -> list[str]:
    """Sentences on why rows are not compared with the paper, although it has their data set and network."""
    said: dict[str, list[str]] = {}
    for row in rows:
        differing = departures(row.first)
        if differing:
            said.setdefault("; ".join(differing), []).append(row.label)
    return [
        f"Not compared with the paper, because settings differ: {', '.join(who)}: {what}." for what, who in said.items()
    ]
