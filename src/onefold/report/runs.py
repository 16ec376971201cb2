"""The runs of some folders, as networks that answered for a test split."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from onefold.metrics import evaluate_predictions, log_mean_probabilities
from onefold.recipe import from_dict, leaves
from onefold.run import RunFolder

# Fields that tell repetitions of one experiment apart, or change nothing that comes out.
REPEATED = {
    "name",
    "seed",
    "device",
    "compile",
    "eval_every",
    "diversity_every",
    "data.root",
    "data.download",
    "data.workers",
}
METHODS = {"kd": "KD", "aekd": "AE-KD", "proxy-end2": "Proxy-EnD²", "be": "BE", "latentbe": "LatentBE"}
PERTURBATIONS = {
    "none": "",
    "gaussian": " + Gaussian",
    "ods": " + ODS",
    "confods": " + ConfODS",
    "tdiv": " + TDiv",
    "tdiv-sdiv": " + TDiv-SDiv",
}
SPEED = "speed.json"  # {"ms_per_image": ..., "passes": ...}, where somebody has measured it


@dataclass(frozen=True, eq=False)
class Answers:
    """What one network, or one ensemble, answered: log-probabilities `[N, K]` and labels `[N]`."""

    label: str
    setting: dict[str, Any]  # fields of the recipe that make it the same experiment as another
    seed: int
    paths: tuple[Path, ...]
    test: tuple[Tensor, Tensor]
    val: tuple[Tensor, Tensor] | None
    env: dict[str, Any]
    ms_per_image: float | None = None

    def metrics(self) -> dict[str, float]:
        """Every metric of the test split, those after temperature scaling too where there is a validation split."""
        logits, labels = self.test
        val_logits, val_labels = self.val if self.val is not None else (None, None)
        return evaluate_predictions(logits, labels, val_logits=val_logits, val_labels=val_labels)


def collect(paths: Iterable[Path | str]) -> tuple[list[Answers], list[str]]:
    """Everything that answered under the folders, and a note for each run that is left out.

    A folder is a run, or holds runs at any depth. Teachers that lie side by side also answer as an ensemble. A run
    that is named itself has to be finished; one found in a folder is left out if it is not.
    """
    answers: list[Answers] = []
    notes: list[str] = []
    ensembles: dict[Path, list[Answers]] = {}
    for run, by_name in dict(found(paths)).items():
        folder = RunFolder(run)
        if not by_name and not folder.finished:
            notes.append(f"{run} is not finished and is left out")
            continue
        answer = read(folder)
        answers.append(answer)
        if is_teacher(folder):
            ensembles.setdefault(run.parent, []).append(answer)
    answers += [together(teachers) for teachers in ensembles.values() if len(teachers) > 1]
    return answers, notes


def found(paths: Iterable[Path | str]) -> Iterable[tuple[Path, bool]]:
    """Every run folder, and whether it was named itself."""
    for given in paths:
        path = Path(given).expanduser()
        if not path.is_dir():
            raise ValueError(f"{given}: there is no such folder; give the folder of a run, or one that holds runs")
        if RunFolder(path).started:
            yield path.resolve(), True
            continue
        runs = sorted(file.parent.resolve() for file in path.rglob("recipe.json"))
        if not runs:
            raise ValueError(
                f"{given}: there is no run in this folder; 'onefold train' and 'onefold distill' make them"
            )
        yield from ((run, False) for run in runs)


def read(folder: RunFolder) -> Answers:
    """The answers of one finished run."""
    _ = folder.result  # refuses a run that is not finished
    recipe = from_dict(folder.recipe)
    test = tensors(folder, "test")
    if test is None:
        raise ValueError(f"{folder.path}: there are no predictions of a test split, which a report is about")
    teacher = is_teacher(folder)
    setting = {name: value for name, value in leaves(recipe).items() if name not in REPEATED}
    if teacher:
        setting = {name: value for name, value in setting.items() if not name.startswith("distill.")}
        label = "single network"
    else:
        perturbation = recipe.distill.perturbation
        label = METHODS.get(recipe.distill.method, recipe.distill.method)
        label += PERTURBATIONS.get(perturbation, f" + {perturbation}")
    return Answers(
        label=label,
        setting=setting,
        seed=recipe.seed,
        paths=(folder.path,),
        test=test,
        val=tensors(folder, "val"),
        env=optional_json(folder, "env.json"),
        ms_per_image=optional_json(folder, SPEED).get("ms_per_image"),
    )


def is_teacher(folder: RunFolder) -> bool:
    return folder.about.get("kind") == "teacher"


def together(teachers: list[Answers]) -> Answers:
    """The ensemble of some teachers: the mean of their probabilities."""
    first = teachers[0]
    for other in teachers[1:]:
        if not torch.equal(other.test[1], first.test[1]) or other.setting != first.setting:
            raise ValueError(
                f"{other.paths[0]} and {first.paths[0]}: expected teachers of one ensemble side by side, "
                "got other test labels or another recipe"
            )

    def mean(pairs: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        return log_mean_probabilities(torch.stack([logits for logits, _ in pairs])), pairs[0][1]

    vals = [teacher.val for teacher in teachers if teacher.val is not None]
    times = [teacher.ms_per_image for teacher in teachers if teacher.ms_per_image is not None]
    parent = first.paths[0].parent
    measured = optional_json(RunFolder(parent), SPEED).get("ms_per_image")
    return Answers(
        label=f"ensemble of {len(teachers)}",
        setting=first.setting,
        seed=first.seed,
        paths=tuple(path for teacher in teachers for path in teacher.paths),
        test=mean([teacher.test for teacher in teachers]),
        val=mean(vals) if len(vals) == len(teachers) else None,
        env=first.env,
        # Each network is asked in turn: without a measurement of its own, the ensemble takes as long as they do.
        ms_per_image=measured or (sum(times) if len(times) == len(teachers) else None),
    )


def tensors(folder: RunFolder, split: str) -> tuple[Tensor, Tensor] | None:
    """Log-probabilities `[N, K]` and labels `[N]` of a split."""
    arrays = folder.predictions(split)
    if arrays is None:
        return None
    labels, logits = arrays
    return torch.from_numpy(np.asarray(logits)), torch.from_numpy(np.asarray(labels)).long()


def optional_json(folder: RunFolder, name: str) -> dict[str, Any]:
    return folder.read_json(name) if (folder.path / name).exists() else {}
