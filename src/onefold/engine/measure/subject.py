"""What is measured: the networks of a finished run or of a folder of teachers, loaded from there."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from onefold.engine.evaluate import Splits, stored
from onefold.engine.keeping import checkpoint
from onefold.engine.measure.store import Measurements, fingerprint, together
from onefold.engine.served import served_by
from onefold.engine.teachers import load_networks, teacher_runs
from onefold.ensemble import BatchEnsemble, Plain, Teachers
from onefold.methods import AnyStudent, method_named
from onefold.metrics import log_mean_probabilities
from onefold.recipe import Recipe, from_dict
from onefold.run import RunFolder
from onefold.types import Ensemble, Prediction


class Folder(NamedTuple):
    """The folder of a run or of teachers. `teachers` is how many of the teachers to use, by default all; `network` is
    where the file of a user's network is now, if it has moved."""

    path: Path
    teachers: int | None = None
    network: str = ""


@dataclass(frozen=True, eq=False)
class Target:
    """A network or an ensemble with its own folder of measurements; `predict` is its prediction from the subject's
    logits `[M, B, K]`."""

    name: str
    store: Measurements
    predict: Prediction
    predictions: Callable[[], list[Splits]]  # stored labels and log-probabilities of each network


@dataclass(frozen=True, eq=False)
class Subject:
    """Networks on a device that are run together. For teachers, the ensembles of the first 2, 3, ... M and each one by
    itself are all measured, since they cost no further passes."""

    path: Path
    recipe: Recipe
    about: dict[str, Any]
    runs: list[RunFolder]
    served: Ensemble
    student: BatchEnsemble | None
    no_members: str  # why there is no student with members, for messages
    targets: list[Target]
    device: torch.device
    network: str = ""  # where the file of a user's network is now, if given

    @property
    def classes(self) -> int:
        return int(self.about["classes"])

    @property
    def image_size(self) -> tuple[int, ...]:
        return tuple(self.about["image_size"])

    @property
    def channels(self) -> int:
        return len(self.about["statistics"][0])

    @property
    def images(self) -> bool:
        """Whether the network's inputs are images rather than features."""
        return len(self.image_size) == 2

    @property
    def main(self) -> Target:
        return self.targets[0]

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Locks the folder, so that no other process measures it at the same time."""
        with RunFolder(self.path).held():
            yield


def is_teachers(path: Path) -> bool:
    return not RunFolder(path).started and any(path.glob("teacher-*"))


def subject_of(folder: Folder, device: torch.device) -> Subject:
    """The networks of a folder; refuses runs that are unfinished or whose network cannot be rebuilt."""
    return teachers_of(folder, device) if is_teachers(folder.path) else run_of(folder, device)


def targets_of(path: Path, teachers: int | None = None) -> list[Target]:
    """The targets of a folder, the main one first, without building any network."""
    if is_teachers(path):
        return teachers_targets(path, teacher_runs(path, teachers))
    run = RunFolder(path)
    run.result  # noqa: B018 -- raises if the run is not finished
    predict = method_named(run.about["method"]).predict
    return [Target(str(path), Measurements(path, fingerprint([run.model])), predict, lambda: [stored(run)])]


def teachers_of(folder: Folder, device: torch.device) -> Subject:
    path, runs = folder.path, teacher_runs(folder.path, folder.teachers)
    teachers = Teachers(load_networks(runs, given=folder.network)).to(device).eval()
    why = f"{path}: teachers share no weights"
    recipe, about = from_dict(runs[0].recipe), runs[0].about
    return Subject(path, recipe, about, runs, teachers, None, why, teachers_targets(path, runs), device, folder.network)


def teachers_targets(path: Path, runs: list[RunFolder]) -> list[Target]:
    """The ensemble of all teachers, those of the first M - 1, ..., 2, and each teacher by itself."""
    prints = [fingerprint([run.model]) for run in runs]
    targets = []
    for m in range(len(runs), 1, -1):
        store = Measurements(path, together(prints[:m]), first=m)
        targets.append(Target(f"{path}, the first {m}", store, first(m), lambda m=m: [stored(r) for r in runs[:m]]))  # type: ignore[misc]
    for m, run in enumerate(runs):
        own = Measurements(run.path, prints[m])
        targets.append(Target(str(run.path), own, member(m), lambda run=run: [stored(run)]))  # type: ignore[misc]
    return targets


def first(m: int) -> Prediction:
    def predict(logits: Tensor) -> Tensor:
        return log_mean_probabilities(logits[:m])

    return predict


def member(m: int) -> Prediction:
    def predict(logits: Tensor) -> Tensor:
        return log_mean_probabilities(logits[m : m + 1])

    return predict


def run_of(folder: Folder, device: torch.device) -> Subject:
    path, run, targets = folder.path, RunFolder(folder.path), targets_of(folder.path)
    found = served_by(run, folder.network)
    served = found.network if isinstance(found.network, BatchEnsemble) else Plain(found.network)
    served.to(device).eval()
    members, why = with_members(run, found.student)
    if members is not None:
        members.to(device).eval()
    recipe, about, asked = from_dict(run.recipe), run.about, served.at_rest
    return Subject(path, recipe, about, [run], asked, members, why, targets, device, folder.network)


def with_members(run: RunFolder, student: AnyStudent) -> tuple[BatchEnsemble | None, str]:
    """The best student with its factors, from the checkpoints; else None and the reason."""
    if not isinstance(student, BatchEnsemble) or student.members < 2:
        return None, f"{run.path} is of the method '{run.about['method']}', whose student has no members"
    best = run.result.get("best_step")
    path = run.checkpoints / ("last.safetensors" if best is None else f"best-{best:08d}.safetensors")
    if not path.exists():
        return None, f"{path} does not exist, and only it has the members' factors"
    state = checkpoint.load(path)
    if best is None:
        state = {"student": state["training"]["ema"] or state["training"]["student"]}
    student.load_state_dict(state["student"])
    return student, ""
