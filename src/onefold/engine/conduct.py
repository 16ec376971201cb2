"""A whole run: from a job to its result, with a folder or without."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from onefold.engine.device import own_randomness, placed
from onefold.engine.environment import environment
from onefold.engine.event_files import check_log, event_files
from onefold.engine.keeper import Keeper
from onefold.engine.loop import fit
from onefold.engine.pack import pack
from onefold.engine.progress import Progress, Silent
from onefold.engine.result import Result, finish, finished_result, served_network
from onefold.engine.training import Job, Training, prepare
from onefold.run import RunFolder

COPIES = 10  # of the weights that a run holds on the disk at most: old and new checkpoints with momenta, the model


def conduct(
    job: Job,
    run: RunFolder | None = None,
    recipe: dict[str, Any] | None = None,
    about: dict[str, Any] | None = None,
    progress: Progress | None = None,
    log: str | None = None,
) -> Result:
    """Trains, or goes on, or finds that all is done; evaluates the best network and keeps it.

    `recipe` is what was asked for and `about` what the folder is: both are recorded, and a folder in which they differ
    is refused. With `log` "tensorboard" the folder gets event files, too.
    """
    progress = Silent() if progress is None else progress
    check_log(log, None if run is None else run.path)
    with own_randomness(job.device), placed(job.teachers, job.device):
        training = prepare(job)
        if run is None:
            keeper = Keeper(None)
            return finish(training, fit(training, keeper, progress), keeper)
        recipe, about = recipe or {}, describe(training) | (about or {})
        if run.finished:
            run.check_same(recipe, about)
            progress.message(f"{run.path} is finished; nothing was changed")
            return finished_result(run, served_network(job.method, training.student))
        pack(training.state_dict())  # what cannot be stored is refused now
        run.begin(recipe, about, environment(job.device), COPIES * size_of(training.student))
        per_step = training.train.examples / len(training.train)
        with run.held(), event_files(log, run.path, per_step) as events:
            keeper = Keeper(run, events)
            return finish(training, fit(training, keeper, progress), keeper)


def describe(training: Training) -> dict[str, Any]:
    """What a folder says about the run in it."""
    job = training.job
    return {
        "method": job.method.name,
        "perturbation": job.perturbation.name,
        "members": training.student.members,
        "classes": training.classes,
        "parameters": sum(p.numel() for p in job.net.parameters()),
        "examples": training.train.examples,
        "steps": job.settings.epochs * len(training.train),
        "optimizer": describe_optimizer(training.optimizer),
        "schedule": type(getattr(training.schedule, "scheduler", training.schedule)).__name__,
        "teachers_are": None if job.teachers is None else fingerprint(job.teachers),
    }


def describe_optimizer(optimizer: Optimizer) -> dict[str, Any]:
    """Its class and what each of its groups is told."""
    groups = [{k: repr(v) for k, v in group.items() if k != "params"} for group in optimizer.param_groups]
    return {"class": type(optimizer).__name__, "groups": groups}


def fingerprint(module: nn.Module) -> str:
    """A hash of all weights: teachers that were trained anew are other teachers."""
    digest = hashlib.blake2b(digest_size=16)
    for name, value in module.state_dict().items():
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def size_of(module: nn.Module) -> int:
    """Bytes of a module's state."""
    return sum(value.nbytes for value in module.state_dict().values())
