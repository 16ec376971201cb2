"""A whole run, from a job to its result, with or without a run folder."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from onefold.engine.abreast import Going, alone
from onefold.engine.device import own_randomness, placed
from onefold.engine.distributed.spread import SpreadTeachers
from onefold.engine.distributed.world import World
from onefold.engine.keeping.checkpoint import weights_hash
from onefold.engine.keeping.environment import environment
from onefold.engine.keeping.event_files import check_log, event_files
from onefold.engine.keeping.fingerprint import of_function, of_network, of_schedule
from onefold.engine.keeping.keeper import Keeper
from onefold.engine.keeping.pack import pack
from onefold.engine.loop import Position, fit
from onefold.engine.networks.named import standardized
from onefold.engine.optim.factories import HOW
from onefold.engine.optim.schedule import Given
from onefold.engine.preflight import check_alike
from onefold.engine.progress import Progress, listening, noting
from onefold.engine.result import Result, finish, finished_result, served_network
from onefold.engine.training import Job, Training, prepare
from onefold.engine.untrained import untrained_note
from onefold.ensemble import Plain, Teachers
from onefold.methods import METHODS, PERTURBATIONS
from onefold.run import RunFolder, differences, leaves, teachers_hash

COPIES = 10  # of the weights a run has on disk at most: old and new checkpoints with momenta, and the model


def conduct(
    job: Job,
    run: RunFolder | None = None,
    recipe: dict[str, Any] | None = None,
    about: dict[str, Any] | None = None,
    progress: Progress | None = None,
    log: str | None = None,
) -> Result:
    """Runs `conducting` to the end."""
    return alone(conducting(job, run, recipe, about, progress, log), job.device)


def conducting(
    job: Job,
    run: RunFolder | None = None,
    recipe: dict[str, Any] | None = None,
    about: dict[str, Any] | None = None,
    progress: Progress | None = None,
    log: str | None = None,
) -> Going[Result]:
    """Trains, resumes, or finds the run finished; evaluates and saves the best network. Yields after every step.

    `recipe` is the requested configuration and `about` describes the folder: both are recorded, and a folder that
    records different ones is refused. With `log="tensorboard"` event files are written into the folder, too.
    """
    world = job.world
    progress = listening(progress, world.rank)
    check_log(log, None if run is None else run.path)
    with (
        own_randomness(job.device),
        placed(job.teachers, job.device),
        contextlib.closing(prepare(replace(job, say=noting(progress)))) as training,
    ):
        recipe, about = recipe or {}, {} if run is None and world.size == 1 else describe(training) | (about or {})
        check_same_everywhere(recipe, about, world)
        if run is None or not world.first(lambda: run.saved):  # a resumed run has been warned already
            look_at(training)
        if run is None:
            keeper = Keeper(None, world)
            at = yield from fit(training, keeper, progress)
            tell_best(at, training, progress)
            return finish(training, at, keeper)
        pack(training.state_dict())  # fails now, not at the first checkpoint, if the state cannot be stored
        size = COPIES * size_of(training.student)
        if world.first(lambda: found_or_begun(run, recipe, about, job.device, size, progress)):
            progress.message(f"{run.path} is finished; nothing was changed")
            network = served_network(job.method, training.student, training.strides)
            return finished_result(run, job.method, network, world)
        per_step = training.train.examples / len(training.train)
        writes = world.rank == 0
        with (
            run.held() if writes else contextlib.nullcontext(),
            event_files(log if writes else None, run.path, per_step) as events,
            Keeper(run, world, events) as keeper,
        ):
            at = yield from fit(training, keeper, progress)
            tell_best(at, training, progress)
            return finish(training, at, keeper)


def tell_best(at: Position, training: Training, progress: Progress) -> None:
    """Reports which epoch's weights are returned, if not the last one's."""
    if at.best is not None and at.best.epoch < training.job.settings.epochs:
        progress.message(
            f"the weights of epoch {at.best.epoch} of {training.job.settings.epochs} are used, the best on the "
            f"validation split: accuracy {100 * at.best.acc:.2f}%"
        )


def look_at(training: Training) -> None:
    """Warns of likely mistakes in the data and the teachers before any training."""
    job = training.job
    if not job.known:
        check_alike(job, training.classes)
    for note in (untrained_note(job, training.classes), same_note(job)):
        if note is not None:
            job.say(note)


def same_note(job: Job) -> str | None:
    """A warning if some teachers have identical weights."""
    if job.teachers is None:
        return None
    members: dict[str, list[str]] = {}
    for m, found in enumerate(weight_hashes(job.teachers, job.world)):
        members.setdefault(found, []).append(str(m))
    same = [", ".join(ms) for ms in members.values() if len(ms) > 1]
    if not same:
        return None
    return (
        f"teachers {' and teachers '.join(same)} have the same weights and give the same predictions: was a network "
        "given twice, or were the same weights loaded?"
    )


def check_same_everywhere(recipe: dict[str, Any], about: dict[str, Any], world: World) -> None:
    """Refuses processes that were given different things: their gradients would belong to different trainings."""
    # The code of functions may differ, as in what only the first process prints.
    own = leaves(recipe) | leaves({name: value for name, value in about.items() if name != "given"}, "run.")
    found = world.collected(differences(world.first(lambda: own), own))
    rank, different = next(((rank, lines) for rank, lines in enumerate(found) if lines), (0, []))
    if different:
        listed = "\n".join(f"  {line}" for line in different)
        raise ValueError(
            f"expected the same settings, data and teachers in all processes, but those of process {rank} differ from "
            f"the first one's; seed what is drawn, such as a random split, with the same number in all:\n{listed}"
        )


def found_or_begun(
    run: RunFolder, recipe: dict[str, Any], about: dict[str, Any], device: torch.device, needed: int, progress: Progress
) -> bool:
    """Whether the run is finished; if not, prepares its folder. Refuses a folder with a different recipe."""
    if run.finished:
        run.check_same(recipe, about)
        return True
    if (note := run.begin(recipe, about, environment(device), needed)) is not None:
        progress.message(note)
    return False


def describe(training: Training) -> dict[str, Any]:
    """What a run folder records about its run."""
    job = training.job
    net = training.student.net if isinstance(training.student, Plain) else job.net  # where lazy layers have weights
    return {
        "method": job.method.name,
        "perturbation": job.perturbation.name,
        "members": training.student.members,
        "classes": training.classes,
        "standardized": standardized(job.net),
        "parameters": sum(p.numel() for p in net.parameters() if not is_lazy(p)),
        "examples": training.train.examples,
        "steps": job.settings.epochs * len(training.train),
        "optimizer": describe_optimizer(training.optimizer),
        "schedule": type(getattr(training.schedule, "scheduler", training.schedule)).__name__,
        "teachers_are": None if job.teachers is None else fingerprint(job.teachers, job.world),
        "given": given(training),
    }


def given(training: Training) -> dict[str, str]:
    """Fingerprints of the network, and of the user's own method, perturbation and scheduler, which may have changed
    under the same names."""
    method, perturbation, schedule = training.job.method, training.job.perturbation, training.schedule
    found = {"network": of_network(training.job.net)}
    if method is not METHODS.get(method.name):
        found["method"] = of_function(method.student, method.objective, method.serve, method.predict)
    if perturbation is not PERTURBATIONS.get(perturbation.name):
        found["perturbation"] = of_function(perturbation.perturb)
    if isinstance(schedule, Given):
        found["scheduler"] = of_schedule(schedule.scheduler)
    return found


def describe_optimizer(optimizer: Optimizer) -> dict[str, Any]:
    """Its class and the settings of each parameter group."""
    told = [{k: v for k, v in group.items() if k not in ("params", *HOW)} for group in optimizer.param_groups]
    groups = [{k: repr(float(v) if isinstance(v, Tensor) else v) for k, v in group.items()} for group in told]
    return {"class": type(optimizer).__name__, "groups": groups}


def fingerprint(teachers: Teachers | SpreadTeachers, world: World) -> str:
    """A hash of all weights, whichever process holds them: retrained teachers count as different teachers."""
    return teachers_hash(weight_hashes(teachers, world))


def weight_hashes(teachers: Teachers | SpreadTeachers, world: World) -> list[str]:
    """A hash of each teacher's weights, in order."""
    if isinstance(teachers, Teachers):
        return [weights_hash(network) for network in teachers.networks]
    own = [] if teachers.own is None else [weights_hash(network) for network in teachers.own.networks]
    return [found for held in world.collected(own) for found in held]


def size_of(module: nn.Module) -> int:
    """The size of a module's state dict in bytes."""
    return sum(value.nbytes for value in module.state_dict().values())
