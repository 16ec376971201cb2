"""Runs recipes: trains teachers, and distills students from them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from onefold.data import Arrays, Augmentation, ResizedCrop, Source, load
from onefold.data.order import draw_seed
from onefold.data.place import place_of
from onefold.data.preprocessing import of_source
from onefold.data.trace import traces
from onefold.engine.abreast import Going, Together, abreast, alone
from onefold.engine.conduct import COPIES, conducting, size_of
from onefold.engine.cost.at_once import ONE_BY_ONE, at_once, room_on
from onefold.engine.device import seeded
from onefold.engine.distributed.launch import device_here, world_here
from onefold.engine.distributed.plan import by_members
from onefold.engine.distributed.spread import SpreadTeachers
from onefold.engine.distributed.world import ALONE, World
from onefold.engine.keeping.event_files import check_log
from onefold.engine.networks.named import begin_alike, build_network, identity, network_of
from onefold.engine.networks.own_network import is_own
from onefold.engine.progress import Progress, listening, noting
from onefold.engine.result import Result, finished_result, served_network
from onefold.engine.settings import settings_of
from onefold.engine.teachers import check_content, check_data, teachers_for, trained_by
from onefold.engine.training import Job
from onefold.ensemble import Teachers
from onefold.methods import Method, Perturbing, method_named, perturbation_named
from onefold.perturb import PIXELS, InputSpace
from onefold.recipe import Recipe, to_dict
from onefold.run import RunFolder, check_places, check_room

SPLIT_SEED = 0  # the validation split belongs to the data, not to a run: all networks share it


def train_teachers(
    recipe: Recipe,
    folder: Path | str,
    *,
    members: Sequence[int] | None = None,
    source: Source | None = None,
    progress: Progress | None = None,
    log: str | None = None,
) -> list[Result]:
    """Trains M networks with labels into `folder/teacher-0`, ..., or only those listed in `members`.

    Each has its own seed, derived from the recipe's seed and its number, so that it comes out the same whichever others
    are trained. Finished ones are left alone: with more members than before the missing ones are added, and with fewer
    nothing is removed.
    """
    check_log(log, folder)
    chosen = numbers(recipe, members)
    world = world_here()
    progress = listening(progress, world.rank)
    runs = {m: RunFolder(Path(folder) / f"teacher-{m}") for m in chosen}
    done = {m: found(run, recipe, {"kind": "teacher", "member": m}, progress, world) for m, run in runs.items()}
    todo = [m for m in chosen if done[m] is None]
    apart, sentence = by_members(recipe.parallel.mode, todo, world)
    if todo:
        world.first(lambda: check_places(runs.values()))
        if sentence:
            progress.message(sentence)
        source = loaded(recipe, world) if source is None else source
        check_beside(folder, recipe, source)
        device = device_here(recipe.device, world)
        net, _ = network_asked(recipe, source)
        if world.rank == 0:
            one = COPIES * size_of(net)
            check_room(Path(folder), one * len(todo), f"{len(todo)} teachers need" if todo[1:] else "a teacher needs")
            if not any(run.started for run in runs.values()) and (note := seed_note(recipe, source, device)):
                noting(progress)(note)
        own = {m: runs[m] for m in (todo[world.rank :: world.size] if apart else todo)}
        done |= trained(recipe, own, source, device, ALONE if apart else world, progress, log)
        if apart:
            world.wait()
            # Loaded into copies of the network made at the start: the user's file may have been edited since.
            method = method_named("supervised")
            done |= {m: finished_result(runs[m], method, copy.deepcopy(net), world) for m in todo}
    return [result for result in done.values() if result is not None]


def numbers(recipe: Recipe, members: Sequence[int] | None) -> list[int]:
    """Which teachers are to be trained."""
    chosen = list(range(recipe.members)) if members is None else list(members)
    for m in chosen:
        if isinstance(m, bool) or not isinstance(m, int) or not 0 <= m < recipe.members:
            raise ValueError(f"members: expected numbers from 0 to {recipe.members - 1}, got {m!r}")
    if not chosen or len(set(chosen)) < len(chosen):
        raise ValueError(f"members: expected different teachers, at least one, got {chosen}")
    return chosen


def check_beside(folder: Path | str, recipe: Recipe, source: Source) -> None:
    """Refuses data other than those of the teachers that are in the folder already."""
    for run in map(RunFolder, sorted(Path(folder).glob("teacher-*"))):
        if run.started:
            check_content(run, recipe.data.source, source)


def trained(
    recipe: Recipe,
    runs: dict[int, RunFolder],
    source: Source,
    device: torch.device,
    world: World,
    progress: Progress,
    log: str | None,
) -> dict[int, Result]:
    """Trains this process's teachers: side by side if that is faster on the device, otherwise one after the other."""
    names = ", ".join(map(str, runs))
    most = side_by_side(recipe, source, device, student=False) if world.size == 1 else 1
    together = most > 1 and len(runs) > 1
    if together:
        many = f", {most} at a time" if most < len(runs) else ""
        progress.message(f"teachers {names} are trained side by side on {device}{many}")
    elif len(runs) > 1 and device.type == "cuda":
        progress.message(f"teachers {names} are trained on {device} {ONE_BY_ONE}")
    shared = Together(progress)
    going = []  # with their networks, which are all made now: a user's file may be edited later
    for place, (m, run) in enumerate(runs.items()):
        own = shared.of(place, f"teacher {m}") if together else progress
        steps = teaching(recipe, run, m, source, device, world, own, log)
        going.append(shared.following(place, steps) if together else steps)
    if together:
        return dict(zip(runs, abreast(going, device, most, shared.failed), strict=True))
    results = {}
    for place, (m, steps) in enumerate(zip(runs, going, strict=True), 1):
        progress.message(f"teacher {m} ({place} of {len(runs)})")
        results[m] = alone(steps, device)
    return results


def seed_note(recipe: Recipe, source: Source, device: torch.device) -> str | None:
    """A warning if a user's network starts with the same weights whatever the seed."""
    if recipe.members < 2 or not is_own(recipe.network):
        return None
    first, second = (network_for(recipe, source, teacher_seed(recipe, m), device) for m in range(2))
    if not begin_alike(first, second):
        return None
    return (
        "all teachers start with the same weights and differ only in the order of their data: if "
        f"{recipe.network} calls torch.manual_seed, or uses a generator with a fixed seed, remove that, because each "
        "teacher has its own seed"
    )


def teacher_seed(recipe: Recipe, member: int) -> int:
    return draw_seed("teacher", recipe.seed, member)


def side_by_side(recipe: Recipe, source: Source, device: torch.device, *, student: bool) -> int:
    """How many of a recipe's runs to interleave on a device."""
    room = room_on(device)
    if room is None:
        return 1
    net, example = network_asked(recipe, source)
    method = method_named(recipe.distill.method if student else "supervised")
    return at_once(net, example, recipe, source, room, method, student=student)


def teaching(
    recipe: Recipe,
    run: RunFolder,
    member: int,
    source: Source,
    device: torch.device,
    world: World,
    progress: Progress,
    log: str | None = None,
) -> Going[Result]:
    """Trains one teacher, yielding after every step."""
    method, perturbation = method_named("supervised"), perturbation_named("none")
    about = {"kind": "teacher", "member": member}
    job = job_of(recipe, source, method, perturbation, None, teacher_seed(recipe, member), device, world)
    return conducting(job, run, to_dict(recipe), about | described(recipe, source), progress, log)


def distill_run(
    recipe: Recipe,
    folder: Path | str,
    teachers_folder: Path | str,
    *,
    source: Source | None = None,
    progress: Progress | None = None,
    log: str | None = None,
) -> Result:
    """Trains the recipe's student on the first M teachers in a folder written by `train_teachers`."""
    run = distilling(recipe, folder, teachers_folder, source=source, progress=progress, log=log)
    return alone(run, device_here(recipe.device, world_here()))


def distilling(
    recipe: Recipe,
    folder: Path | str,
    teachers_folder: Path | str,
    *,
    source: Source | None = None,
    progress: Progress | None = None,
    log: str | None = None,
) -> Going[Result]:
    """`distill_run`, yielding after every step."""
    check_log(log, folder)
    world = world_here()
    progress = listening(progress, world.rank)
    method, perturbation = method_named(recipe.distill.method), perturbation_named(recipe.distill.perturbation)
    run = RunFolder(folder)
    about: dict[str, Any] = {"kind": "student", "teachers": str(teachers_folder)}
    done = found(run, recipe, about, progress, world)
    if done is not None:
        return done
    world.first(lambda: check_places([run]))
    device, teachers = device_here(recipe.device, world), None
    if method.needs_teachers:
        wanted = recipe.parallel.teachers
        teachers, sentence = teachers_for(world, wanted, teachers_folder, recipe.members, device, recipe.network)
        about |= {"teachers_trained": trained_by(teachers_folder)}
        if sentence:
            progress.message(sentence)
    source = loaded(recipe, world) if source is None else source
    if teachers is not None:
        check_data(teachers_folder, recipe.members, recipe.data.source, source)
    seed = draw_seed("student", recipe.seed)
    job = job_of(recipe, source, method, perturbation, teachers, seed, device, world)
    return (yield from conducting(job, run, to_dict(recipe), about | described(recipe, source), progress, log))


def described(recipe: Recipe, source: Source) -> dict[str, Any]:
    """What a run folder records about the data and the network, so that the network can be rebuilt."""
    return {
        "data": recipe.data.source,
        "network": recipe.network,
        "statistics": [list(moments) for moments in source.statistics],
        "image_size": list(source.image_size),
        "class_names": list(source.classes),
        "data_content": traces(source),
        "preprocessing": of_source(source),
    } | places(recipe)


def places(recipe: Recipe) -> dict[str, Any]:
    """Where the data and a user's network are now."""
    return {"data_place": place_of(recipe.data.source)} | identity(recipe.network)


def job_of(
    recipe: Recipe,
    source: Source,
    method: Method,
    perturbation: Perturbing,
    teachers: Teachers | SpreadTeachers | None,
    seed: int,
    device: torch.device,
    world: World,
) -> Job:
    """The job of training one of a recipe's networks."""
    return Job(
        method=method,
        perturbation=perturbation,
        net=network_for(recipe, source, seed, device),
        teachers=teachers,
        train=source.train,
        val=source.val,
        test=source.test,
        settings=settings_of(recipe, seed),
        device=device,
        augment=augmentation_of(recipe, source),
        space=space_of(source),
        workers=recipe.data.workers,
        world=world,
        known=True,
    )


def network_for(recipe: Recipe, source: Source, seed: int, device: torch.device) -> nn.Module:
    """The recipe's network with its initial weights."""
    with seeded(device, draw_seed("network", seed)):
        return build_network(recipe.network, len(source.classes), source.statistics, source.image_size)


def network_asked(recipe: Recipe, source: Source) -> tuple[nn.Module, Tensor]:
    """The recipe's network with any weights, and inputs of a valid shape."""
    return network_of(described(recipe, source) | {"classes": len(source.classes)})


def found(run: RunFolder, recipe: Recipe, about: dict[str, Any], progress: Progress, world: World) -> Result | None:
    """The result of a finished run, without reading the data, or None; refuses a folder with a different recipe."""

    def read() -> dict[str, Any] | None:
        run.check_open(to_dict(recipe), run.about | about | places(recipe))
        return run.about if run.finished else None

    recorded = world.first(read)
    if recorded is None:
        return None
    progress.message(f"{run.path} is finished; nothing was changed")
    net, example = network_of(recorded | identity(recipe.network))  # the file may have moved: use its place given now
    method = method_named(recorded["method"])
    served = served_network(method, method.student(net, recorded["members"], example))
    return finished_result(run, method, served, world)


def loaded(recipe: Recipe, world: World) -> Source:
    """The recipe's data; of several processes the first loads, and if need be downloads, them first."""
    data = recipe.data
    options: dict[str, Any] = {"download": data.download, "skip_unreadable": data.skip_unreadable}
    return world.in_turn(lambda: load(data.source, data.root, seed=SPLIT_SEED, **options))


def augmentation_of(recipe: Recipe, source: Source) -> Augmentation | None:
    if recipe.data.augment:
        return source.augment
    if isinstance(source.augment, ResizedCrop):
        raise ValueError(
            f"data.augment: expected True for {recipe.data.source}, whose images are scaled to one size by random "
            "crops, got False"
        )
    return None


def space_of(source: Source) -> InputSpace:
    """Pixels or, for features, a step of a tenth of each feature's standard deviation. Images on another scale are
    refused later if they would be perturbed."""
    train = source.train
    return InputSpace.of(train.x) if isinstance(train, Arrays) and not train.images and train.x.dim() != 4 else PIXELS
