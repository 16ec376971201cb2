"""Collects the runs in some folders, as networks and ensembles with the metrics of their test predictions."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from onefold.metrics.threads import one_thread
from onefold.predictions import stored
from onefold.recipe import from_dict, leaves
from onefold.report.answers import METHODS, PERTURBATIONS, SINGLE, SPEED, Answers, Taught, alone
from onefold.report.ensembles import NAMED, ensembles, optional, shown
from onefold.report.measured import measured
from onefold.report.measurements import read_measurements
from onefold.report.unfinished import Unfinished
from onefold.run import ADDED, RunFolder, made_by
from onefold.run import leaves as dictionary_leaves

# Fields that differ between repetitions of an experiment, or that change no result.
REPEATED = {"name", "seed", "device", "compile", "fast", "minutes", "log_every", "parallel.mode", "parallel.teachers"}
REPEATED |= {"eval_every", "eval_last", "diversity_every", "data.root", "data.download", "data.workers"}


class Collected(NamedTuple):
    """What was found in some folders."""

    answers: list[Answers]
    notes: list[str]  # a sentence for each run that is left out or incomplete
    going: list[Unfinished]


def collect(paths: Iterable[Path | str]) -> tuple[list[Answers], list[str]]:
    """All finished runs and ensembles in the folders, and a sentence for each run that is left out or incomplete."""
    return gathered(paths)[:2]


@one_thread()
def gathered(paths: Iterable[Path | str]) -> Collected:
    """The same, and also runs that are not finished but have a log to show.

    Each folder is a run, or contains runs at any depth. Teachers in the same folder also count as ensembles of the
    first 1, 2, ... of them. Networks with the same weights count once. Memory does not grow with the number of
    predictions.
    """
    answers: list[Answers] = []
    notes: list[str] = []
    going: list[Unfinished] = []
    names: dict[str, str] = {}
    teachers: dict[Path, list[Answers]] = {}
    known: dict[tuple[str, tuple[str, ...]], Path] = {}  # by kind and weights, where they were found first

    def copied_from(answer: Answers) -> Path | None:
        if not answer.weights or not all(answer.weights):
            return None  # not recorded
        first = known.setdefault((answer.kind, answer.weights), answer.folder)
        return None if first == answer.folder else first

    for run in dict.fromkeys(found(paths)):
        folder = RunFolder(run)
        try:
            answer = read(folder, notes, names)
        except (ValueError, OSError) as error:
            notes.append(str(error) if str(run) in str(error) else f"{run}: {error}")
            going += unfinished(folder, names)
            continue
        if (first := copied_from(answer)) is None:
            answers.append(answer)
            notes += answer.measurements.problems
        else:
            notes.append(f"{run} has the same weights as {first}, so it is left out")
        own = answer.kind == "single" and run.name.removeprefix(NAMED).isdecimal()  # from Python, but named like ours
        if folder.about.get("kind") == "teacher" or own:
            teachers.setdefault(run.parent, []).append(answer)
    for group in teachers.values():
        try:
            together = ensembles(group, notes)
        except (ValueError, OSError) as error:
            notes.append(str(error))
            continue
        new = [answer for answer in together if copied_from(answer) is None]
        answers += new
        notes += [problem for answer in new if answer.members > 1 for problem in answer.measurements.problems]
    return Collected(answers, notes, going)


def found(paths: Iterable[Path | str]) -> Iterable[Path]:
    """Every run folder."""
    for given in paths:
        path = Path(given).expanduser()
        if not path.is_dir():
            raise ValueError(f"{given}: there is no such folder; give a run folder, or one that contains runs")
        if RunFolder(path).started:
            yield path.resolve()
            continue
        runs = {file.parent.resolve() for name in ("recipe.json", "result.json") for file in path.rglob(name)}
        if not runs:
            raise ValueError(
                f"{given}: there are no runs in this folder; 'onefold train' and 'onefold distill' create them"
            )
        yield from sorted(runs, key=lambda run: (run.parent, len(run.name), run.name))  # teacher-10 after teacher-9


def read(folder: RunFolder, notes: list[str], names: dict[str, str]) -> Answers:
    """Reads a finished run and computes its metrics; missing files that are optional get a note."""
    about = folder.about
    setting, seed = setting_of(folder.recipe, about, names)
    if not folder.finished:
        raise ValueError(f"{folder.path} is not finished{reached(folder, about)}; run its command again to resume")
    seconds = folder.result.get("seconds")
    test = stored(folder.predictions_file("test"))
    if test is None:
        raise ValueError(f"{folder.path}: there are no predictions on a test split, which reports need")
    numbers = measured(test, stored(folder.predictions_file("val")))
    measurements = read_measurements(folder.path)
    label, method, perturbation, members = what_it_is(setting, about)
    single = label == SINGLE
    if single:
        setting = alone(setting)
    times = measurements.costs
    return Answers(
        label,
        "single" if single else "student",
        method,
        perturbation,
        members,
        setting,
        seed,
        (folder.path,),
        **shown(numbers),
        env=optional(folder, "env.json", notes),
        seconds=times.train_seconds if times is not None and times.train_seconds is not None else seconds,
        ms_per_image=optional(folder, SPEED, notes).get("ms_per_image"),
        log=logged(folder, notes),
        measurements=measurements,
        taught=taught_by(about, names),
        weights=(weights,) if isinstance(weights := folder.result.get("weights"), str) else (),
        compact=test.compact,
        candidates=candidates(folder.recipe),
    )


def candidates(recipe: dict[str, Any]) -> tuple[int, int] | None:
    """`eval_every` and `eval_last` of a recipe, if it has them."""
    rule = tuple((ADDED | recipe).get(name) for name in ("eval_every", "eval_last"))
    return rule if all(isinstance(value, int) for value in rule) else None  # type: ignore[return-value]


def taught_by(about: dict[str, Any], names: dict[str, str]) -> Taught:
    trained = about.get("teachers_trained")
    setting = alone(setting_of(trained["recipe"], trained, names)[0]) if trained else None
    return Taught(about.get("teachers_are") or "", about.get("teachers") or "", setting)


def what_it_is(setting: dict[str, Any], about: dict[str, Any]) -> tuple[str, str, str, int]:
    """The label of such a run, its method, its perturbation, and its number of teachers."""
    method = str(about.get("method", setting.get("distill.method")))
    perturbation = str(about.get("perturbation", setting.get("distill.perturbation", "none")))
    members = int(setting.get("members") or about.get("members") or 1)
    if about.get("kind") == "teacher" or method == "supervised":
        return SINGLE, "supervised", "none", 1
    label = "Single KD" if (method, members) == ("kd", 1) else METHODS.get(method, method)
    return label + PERTURBATIONS.get(perturbation, f" + {perturbation}"), method, perturbation, members


def unfinished(folder: RunFolder, names: dict[str, str]) -> list[Unfinished]:
    """The run, if it has started and is only unfinished; empty if it is damaged."""
    try:
        about, recipe = folder.about, folder.recipe
        setting, seed = setting_of(recipe, about, names)
        log = tuple(line for line in folder.metrics() if isinstance(line, dict))
        what = what_it_is(setting, about)
        name = f"teacher {about['member']}" if about.get("kind") == "teacher" else what[0]
        title, epochs = f"{setting['data.source']}, {setting['network']}", int(recipe["epochs"])
        steps = int(about["steps"]) / epochs
        run = Unfinished(f"{name}, seed {seed}", title, folder.path, log, steps, epochs, *what[1:])
    except (ValueError, OSError, LookupError, TypeError):
        return []
    return [] if folder.finished else [run]


def setting_of(recipe: dict[str, Any], about: dict[str, Any], names: dict[str, str]) -> tuple[dict[str, Any], int]:
    """The settings that define the experiment of a run, and its seed. A run from Python has no recipe.

    `names` maps the location of data, and the content of network files, to the name that the first run used, so that
    the same data or network under two names counts as the same.
    """
    if about.get("kind") == "python" or recipe.get("source") == "python":
        record = from_python(dictionary_leaves(recipe), about)
    else:
        record = leaves(from_dict(recipe))
        if place := about.get("data_place"):
            record["data.source"] = names.setdefault(place, record["data.source"])
        if content := about.get("network_content"):  # a user's own network, identified by the content of its file
            name = PurePath(record["network"]).name
            record["network"] = names.setdefault(f"{content}:{made_by(name)}", name)
            record["network file"] = content[:8]  # tells versions of the file apart
    return {name: value for name, value in record.items() if name not in REPEATED}, int(record.get("seed", 0))


def from_python(record: dict[str, Any], about: dict[str, Any]) -> dict[str, Any]:
    """The settings of a run from Python. What has no name of its own, such as tensors or a network's layers, is known
    by a short hash."""
    glances = {name: [row[0] for row in rows] for name, rows in (about.get("glances") or {}).items()}
    data = {name: record.pop(name) for name in list(record) if name.startswith("splits.")}
    given = {name: print.partition(":")[2][:8] for name, print in (about.get("given") or {}).items()}
    found = {"data": hashed(f"{data} {glances}"), "layers": given.pop("network", None)}
    found |= {f"own {name}": print for name, print in given.items()}
    found |= {"parameters": about.get("parameters"), "optimizer": (about.get("optimizer") or {}).get("class")}
    found |= {"data.source": "data given in Python", "members": about.get("taught_by") or about.get("members", 1)}
    found |= {"distill.method": about.get("method"), "distill.perturbation": about.get("perturbation")}
    return record | found


def hashed(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()


def reached(folder: RunFolder, about: dict[str, Any]) -> str:
    """How far an unfinished run has got, in parentheses."""
    try:
        last = folder.metrics()[-1]
    except (ValueError, LookupError, OSError):
        return ""
    val = [line for line in folder.metrics() if line.get("kind") == "val"][-1:]
    detail = f", validation accuracy {100 * val[0]['acc']:.1f}% and NLL {val[0]['nll']:.3f}" if val else ""
    of = f" of {about['steps']:,}" if isinstance(about.get("steps"), int) else ""
    return f" (step {last.get('step', 0):,}{of}, epoch {last.get('epoch', 0)}{detail})"


def logged(folder: RunFolder, notes: list[str]) -> tuple[dict[str, Any], ...]:
    """The lines of the log."""
    try:
        return tuple(line for line in folder.metrics() if isinstance(line, dict))
    except (ValueError, OSError) as error:
        notes.append(f"{error}; its curves are left out")
        return ()
