"""`onefold train` and `onefold distill`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from onefold.cli.proposal import check_perturbed, chosen, propose_student
from onefold.cli.requests import Distill, Train, recipe_asked
from onefold.cli.summary import source_of, summary
from onefold.cli.tables import metrics_table, temperature_warnings
from onefold.engine import distill_run, evaluate_run, train_teachers
from onefold.engine.distributed import World, device_here, world_here
from onefold.engine.from_recipe import places
from onefold.engine.keeping.event_files import check_log
from onefold.engine.networks.named import check_network, check_recorded, found_at
from onefold.engine.settings import settings_of
from onefold.engine.teachers import teacher_runs
from onefold.engine.untrained import chance_note
from onefold.methods import check_taken, method_named, perturbation_named
from onefold.recipe import Recipe, to_dict
from onefold.run import RunFolder, check_places
from onefold.terminal import display, propose, say


def run(request: Train | Distill, out: Console) -> None:
    train(request, out) if isinstance(request, Train) else distill(request, out)


def train(request: Train, out: Console) -> None:
    world = world_here()
    recipe = recipe_of(request, world)
    members = members_of(request.members, recipe.members)
    folder = expanded(request.out or f"runs/{recipe.name}/seed-{recipe.seed}/teachers")
    numbers = range(recipe.members) if members is None else members
    runs = [folder / f"teacher-{m}" for m in numbers]
    if world.first(lambda: RunFolder(folder).started):
        raise ValueError(f"out: {folder} is a run folder, not a folder of teachers; choose another folder")
    abouts = [{"kind": "teacher", "member": m} for m in numbers]
    source = None
    if not world.first(lambda: finished(recipe, runs, abouts)):
        world.first(lambda: check_places(map(RunFolder, runs)))  # refuses unwritable folders before data are read
        source = world.in_turn(lambda: source_of(recipe))
        say(summary(recipe, source, student=False))
    with display() as shown:
        shown_as = shown.stage("training")
        results = train_teachers(recipe, folder, members=members, source=source, progress=shown_as, log=request.log)
    if world.rank:
        return
    rows = [(r.folder.name if r.folder else "", r.metrics) for r in results]
    out.print(metrics_table(rows, out.width))
    for warning in temperature_warnings(rows):
        say(warning)
    if (note := chance_note(dict(zip(numbers, map(RunFolder, runs), strict=True)))) is not None:
        say(note)
    say(f"teachers: {folder}")
    if more := beyond(folder, recipe.members):
        say(
            f"the folder also has {', '.join(more)}, left unchanged: a student of {recipe.members} teachers learns "
            f"from the first {recipe.members}, while evaluate and report use all in the folder"
        )
    missing = [m for m in range(recipe.members) if not (folder / f"teacher-{m}" / "result.json").exists()]
    if missing:
        say(f"still to be trained: {', '.join(str(m) for m in missing)}; run the same command without --members")
    else:
        propose_student(request, recipe, folder, source)


def beyond(folder: Path, members: int) -> list[str]:
    """Teachers in the folder beyond the number that the recipe uses."""
    numbers = (path.name.removeprefix("teacher-") for path in folder.glob("teacher-*"))
    return [f"teacher-{m}" for m in sorted(int(n) for n in numbers if n.isdecimal()) if m >= members]


def distill(request: Distill, out: Console) -> None:
    world = world_here()
    recipe = recipe_of(request, world)
    method, perturbation = method_named(recipe.distill.method), perturbation_named(recipe.distill.perturbation)
    check_taken(method, perturbation, chosen(request.recipe, recipe))
    teachers = expanded(request.teachers)
    if not teachers.is_dir():
        raise ValueError(f"--teachers: there is no folder {teachers}; 'onefold train {request.recipe}' makes one")
    name = method.name + ("" if perturbation.name == "none" else f"-{perturbation.name}")
    folder = expanded(request.out or f"runs/{recipe.name}/seed-{recipe.seed}/{name}")
    if folder.resolve() == teachers.resolve():
        raise ValueError(f"out: {folder} is the folder of the teachers; choose another one for the student")
    source = None
    if not world.first(lambda: finished(recipe, [folder], [{"kind": "student", "teachers": str(teachers)}])):
        if method.needs_teachers:
            # Refuses unfinished teachers before data are read.
            runs = teacher_runs(teachers, recipe.members, fewer="--recipe.members")
            for run in runs:
                check_recorded(found_at(run.about, recipe.network))
            if (theirs := runs[0].about.get("data", recipe.data.source)) != recipe.data.source:
                say(f"the teachers were trained on {theirs}: --data.source {theirs} gives the student the same data")
        world.first(lambda: check_places([RunFolder(folder)]))
        source = world.in_turn(lambda: source_of(recipe))
        check_perturbed(recipe, source)
        say(summary(recipe, source, student=True))
    with display() as shown:
        result = distill_run(recipe, folder, teachers, source=source, progress=shown.stage(name), log=request.log)
    if world.rank:
        return
    compared = [(name, result.metrics)]
    if all(RunFolder(teachers / f"teacher-{m}").finished for m in range(recipe.members)):
        compared.insert(0, ("teachers together", evaluate_run(teachers, recipe.members)))
        if recipe.members > 1:
            compared.insert(0, ("one teacher, mean", mean_of(teachers, recipe.members)))
    out.print(metrics_table(compared, out.width))
    for warning in temperature_warnings(compared):
        say(warning)
    if (note := no_gain(result.metrics, compared[0][1])) is not None:
        say(f"{name} {note}")
    say(f"network: {folder / 'model.safetensors'}")
    propose(["onefold", "report", str(teachers), str(folder)])


def mean_of(teachers: Path, members: int) -> dict[str, float]:
    """The mean of the teachers' individual metrics, each at its own temperature."""
    each = [RunFolder(teachers / f"teacher-{m}").result["metrics"] for m in range(members)]
    names = [name for name in each[0] if name != "temperature" and all(name in own for own in each)]
    return {name: sum(own[name] for own in each) / members for name in names}


def no_gain(student: dict[str, float], single: dict[str, float]) -> str | None:
    """A warning if the student is worse than the average single teacher."""
    if not {"acc", "nll"} <= student.keys() & single.keys():
        return None
    if student["acc"] >= single["acc"] or student["nll"] <= single["nll"]:
        return None
    accuracy = f"{100 * student['acc']:.2f}% vs. {100 * single['acc']:.2f}%"
    return (
        f"is worse than the average single teacher, both in accuracy ({accuracy}) and in NLL ({student['nll']:.4f} vs. "
        f"{single['nll']:.4f}), so distillation did not pay off; train longer, or use a teacher instead"
    )


def finished(recipe: Recipe, folders: Sequence[Path], abouts: Sequence[dict[str, Any]]) -> bool:
    """Whether all runs are done, so that the data are not needed; a folder of another recipe is refused."""
    runs = [RunFolder(folder) for folder in folders]
    for run, about in zip(runs, abouts, strict=True):
        run.check_open(to_dict(recipe), run.about | about | places(recipe))
    return all(run.finished for run in runs)


def recipe_of(request: Train | Distill, world: World) -> Recipe:
    """The recipe with its flags, checked."""
    check_log(request.log, request.out or "runs")  # refuses a missing package before data are read
    recipe = recipe_asked(request)
    device_here(recipe.device, world)  # refuses a missing device before data are read
    settings_of(recipe, recipe.seed)  # refuses numbers that make no sense
    check_network(recipe.network)
    if request.download:
        recipe = dataclasses.replace(recipe, data=dataclasses.replace(recipe.data, download=True))
    return recipe


def expanded(path: str) -> Path:
    return Path(path).expanduser()  # the shell does not expand --out=~/runs


def members_of(given: str | None, members: int) -> list[int] | None:
    """The teachers that `--members 2,3` names."""
    if given is None:
        return None
    words = given.split(",")
    if not all(word.strip().isdecimal() for word in words):
        raise ValueError(f"--members: expected the teachers' numbers such as 2,3, got '{given}'")
    chosen = [int(word) for word in words]
    if len(set(chosen)) < len(chosen):
        raise ValueError(f"--members: expected each teacher once, got '{given}'")
    if any(m >= members for m in chosen):
        raise ValueError(
            f"--members: expected teachers from 0 to {members - 1}, got '{given}'; "
            "--recipe.members changes how many there are"
        )
    return chosen
