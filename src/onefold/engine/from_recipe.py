"""Recipes carried out: teachers, and students of teachers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from onefold.data import Arrays, Augmentation, ResizedCrop, Source, load
from onefold.data.order import draw_seed
from onefold.engine.conduct import conduct
from onefold.engine.device import device_named, own_randomness
from onefold.engine.event_files import check_log
from onefold.engine.networks import build_network, network_of
from onefold.engine.progress import Progress, Silent
from onefold.engine.result import Result, finished_result, served_network
from onefold.engine.settings import settings_of
from onefold.engine.teachers import check_data, load_teachers
from onefold.engine.training import Job
from onefold.ensemble import Teachers
from onefold.methods import Method, Perturbing, method_named, perturbation_named
from onefold.perturb import PIXELS, InputSpace
from onefold.recipe import Recipe, to_dict
from onefold.run import RunFolder

SPLIT_SEED = 0  # what is held out for validation belongs to the data, not to a run: all networks share it


def train_teachers(
    recipe: Recipe,
    folder: Path | str,
    *,
    members: Sequence[int] | None = None,
    source: Source | None = None,
    progress: Progress | None = None,
    log: str | None = None,
) -> list[Result]:
    """Trains M networks with labels into `folder/teacher-0`, ...; some of them with `members`.

    Each has a seed of its own, made of the recipe's and its number, so that it comes out the same whoever else is
    trained. Those that are finished are left as they are.
    """
    check_log(log, folder)
    chosen = list(range(recipe.members)) if members is None else list(members)
    for m in chosen:
        if isinstance(m, bool) or not isinstance(m, int) or not 0 <= m < recipe.members:
            raise ValueError(f"members: expected numbers from 0 to {recipe.members - 1}, got {m!r}")
    if not chosen or len(set(chosen)) < len(chosen):
        raise ValueError(f"members: expected different teachers, at least one, got {chosen}")
    progress = Silent() if progress is None else progress
    method, perturbation = method_named("supervised"), perturbation_named("none")
    results = []
    for place, m in enumerate(chosen, 1):
        run = RunFolder(Path(folder) / f"teacher-{m}")
        about = {"kind": "teacher", "member": m}
        done = found(run, recipe, about, progress)
        if done is None:
            source = loaded(recipe) if source is None else source
            progress.message(f"teacher {m} ({place} of {len(chosen)})")
            seed = draw_seed("teacher", recipe.seed, m)
            done = carry_out(recipe, run, source, method, perturbation, None, seed, about, progress, log)
        results.append(done)
    return results


def distill_run(
    recipe: Recipe,
    folder: Path | str,
    teachers_folder: Path | str,
    *,
    source: Source | None = None,
    progress: Progress | None = None,
    log: str | None = None,
) -> Result:
    """Trains the recipe's student on the first M teachers in a folder that `train_teachers` has filled."""
    check_log(log, folder)
    progress = Silent() if progress is None else progress
    method, perturbation = method_named(recipe.distill.method), perturbation_named(recipe.distill.perturbation)
    run = RunFolder(folder)
    about = {"kind": "student", "teachers": str(teachers_folder)}
    done = found(run, recipe, about, progress)
    if done is not None:
        return done
    teachers = load_teachers(teachers_folder, members=recipe.members) if method.needs_teachers else None
    source = loaded(recipe) if source is None else source
    if teachers is not None:
        check_data(teachers_folder, recipe.members, recipe.data.source, source)
    seed = draw_seed("student", recipe.seed)
    return carry_out(recipe, run, source, method, perturbation, teachers, seed, about, progress, log)


def carry_out(
    recipe: Recipe,
    run: RunFolder,
    source: Source,
    method: Method,
    perturbation: Perturbing,
    teachers: Teachers | None,
    seed: int,
    about: dict[str, Any],
    progress: Progress,
    log: str | None,
) -> Result:
    """Trains one network of a recipe."""
    device = device_named(recipe.device)
    about = about | {
        "data": recipe.data.source,
        "network": recipe.network,
        "statistics": [list(moments) for moments in source.statistics],
        "image_size": list(source.image_size),
        "class_names": list(source.classes),
    }
    with own_randomness(device):
        torch.manual_seed(draw_seed("network", seed))
        net = build_network(recipe.network, len(source.classes), source.statistics, source.image_size)
    job = Job(
        method=method,
        perturbation=perturbation,
        net=net,
        teachers=teachers,
        train=source.train,
        val=source.val,
        test=source.test,
        settings=settings_of(recipe, seed),
        device=device,
        augment=augmentation_of(recipe, source),
        space=space_of(source),
        workers=recipe.data.workers,
    )
    return conduct(job, run, to_dict(recipe), about, progress, log)


def found(run: RunFolder, recipe: Recipe, about: dict[str, Any], progress: Progress) -> Result | None:
    """The result of a finished run, without a look at the data; a folder of another recipe is refused."""
    run.check_same(to_dict(recipe), run.about | about)
    if not run.finished:
        return None
    progress.message(f"{run.path} is finished; nothing was changed")
    net, example = network_of(run.about)
    method = method_named(run.about["method"])
    return finished_result(run, served_network(method, method.student(net, run.about["members"], example)))


def loaded(recipe: Recipe) -> Source:
    """The recipe's data."""
    data = recipe.data
    return load(data.source, data.root, download=data.download, seed=SPLIT_SEED, skip_unreadable=data.skip_unreadable)


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
    """Pixels, or a step for each feature as large as a tenth of its deviation."""
    train = source.train
    if not isinstance(train, Arrays) or train.images:
        return PIXELS
    low, high = train.x.aminmax()
    return PIXELS if train.x.dim() == 4 and low >= 0 and high <= 1 else InputSpace.of(train.x)
