"""Runs that share their data are asked together about corrupted images, and the numbers are those of each by itself."""

from __future__ import annotations

import dataclasses
import importlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor

from onefold.data.corrupt import corrupt, published
from onefold.engine import train_teachers
from onefold.engine.keeping.checkpoint import load_network
from onefold.engine.measure import corruption, groups
from onefold.engine.measure.inputs import DataOptions
from onefold.engine.measure.measure import Wanted, measure_runs
from onefold.engine.measure.progress import Told, listed
from onefold.engine.measure.subject import Folder
from onefold.recipes import recipe_named

Copies = Callable[..., Path]
Sets = list[tuple[str, int]]
CORRUPT = importlib.import_module("onefold.data.corrupt")  # the package; onefold.data has a function of that name
MADE = Wanted(corruptions=True)
# Holds folders until its input ends, or says which it cannot hold.
HOLDS = """
import contextlib, sys
from onefold.run import RunFolder
with contextlib.ExitStack() as held:
    for path in sys.argv[1:]:
        try:
            held.enter_context(RunFolder(path).held())
        except ValueError as error:
            print(error)
    print("ready", flush=True)
    sys.stdin.read()
"""


class Heard:
    """Keeps what it is told, and does something before the set of a number."""

    def __init__(self, before: int = -1, does: Callable[[], None] = lambda: None) -> None:
        self.titles, self.messages, self.before, self.does = list[str](), list[str](), before, does

    def __call__(self, title: str) -> Heard:
        self.titles.append(title)
        return self

    def title(self, text: str) -> None:
        pass

    def count(self, done: int, total: int, detail: str = "") -> None:
        if done == self.before and done < total and detail:
            self.does()

    def message(self, text: str) -> None:
        self.messages.append(text)


def measured(paths: Sequence[Path], wanted: Wanted = MADE, stage: Heard | None = None) -> Told:
    """As the command does it."""
    told = Told()
    for group in groups.groups([Folder(path) for path in paths], wanted):
        found = measure_runs(group, wanted, torch.device("cpu"), stage or Heard())
        told.left_out.extend(found.left_out)
        told.failed.extend(found.failed)
        told.refused.update(found.refused)
    return told


def stored(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("corruption*.json")}


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Sets:
    """The sets that are made, and those that are read, a corruption at a time."""
    seen: Sets = []

    def noting(images: Tensor, name: str, severity: int, seed: int, first: int = 0) -> Tensor:
        if first == 0:
            seen.append((name, severity))
        return corrupt(images, name, severity, seed, first)

    def reading(folder: Path, names: Sequence[str]) -> Iterator[Any]:
        for piece in published(folder, names):
            seen.append((piece.name, piece.severity))
            yield piece

    monkeypatch.setattr(CORRUPT, "corrupt", noting)
    monkeypatch.setattr(CORRUPT, "published", reading)
    return seen


@pytest.fixture
def copies(trained: Path, tmp_path: Path) -> Copies:
    """Some of the trained folders, copied into a folder of that name."""

    def copied(name: str, *folders: str) -> Path:
        for each in folders:
            shutil.copytree(trained / each, tmp_path / name / each)
        return tmp_path / name

    return copied


@pytest.fixture
def alone(copies: Copies, few: Sets) -> Path:  # noqa: ARG001
    """Two runs that were measured one after the other."""
    folder = copies("alone", "latentbe", "kd")
    for name in ("latentbe", "kd"):
        assert measured([folder / name]) == Told()
    return folder


def edit(path: Path, name: str, change: Callable[[dict[str, Any]], Any]) -> None:
    content = json.loads((path / name).read_text())
    change(content)
    (path / name).write_text(json.dumps(content))


def holding(*paths: Path) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", HOLDS, *map(str, paths)]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("source", ["made", "published"])
def test_the_numbers_are_those_of_each_by_itself(
    copies: Copies, few: Sets, made: Sets, tmp_path: Path, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, sets = MADE, few
    if source == "published":
        monkeypatch.setattr(corruption, "SEVERITIES", range(1, 6))
        (tmp_path / "DIGITS-C").mkdir()
        draws = np.random.default_rng(0)
        np.save(tmp_path / "DIGITS-C" / "labels.npy", np.tile(draws.integers(0, 10, 30), 5))
        for name in ("contrast", "shot_noise"):
            np.save(tmp_path / "DIGITS-C" / f"{name}.npy", draws.integers(0, 256, (150, 9, 9, 3), dtype=np.uint8))
        sets = [(name, severity) for name in ("contrast", "shot_noise") for severity in range(1, 6)]
        wanted = Wanted(corrupted=tmp_path / "DIGITS-C")
    names = ("teachers", "latentbe", "be", "kd")
    apart, together = copies("apart", *names), copies("together", *names)
    for name in names:
        assert measured([apart / name], wanted) == Told()
    assert made == 4 * sets
    made.clear()
    stage = Heard()
    assert measured([together / name for name in names], wanted, stage) == Told()
    assert made == sets
    assert "4 runs: corruptions" in stage.titles
    assert len(stored(apart)) == 8  # two ensembles, three teachers, three students
    assert stored(together) == stored(apart)
    assert measured([together / name for name in names], wanted, stage) == Told()
    assert [message.split(" for ")[0] for message in stage.messages] == 4 * ["corruption: already stored"]
    assert made == sets


def test_who_has_some_is_asked_for_the_others(
    alone: Path, copies: Copies, made: Sets, few: Sets, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copies("together", "latentbe", "kd")
    runs = [folder / "latentbe", folder / "kd"]
    with pytest.raises(KeyboardInterrupt):
        measured(runs[1:], stage=Heard(2, interrupt))
    asked: list[list[str]] = []
    usual = corruption.ask_about

    def noting(key: str, batches: Iterator[corruption.Batch], lacking: Sequence[corruption.Rows]) -> None:
        asked.append([rows.subject.path.name for rows in lacking])
        usual(key, batches, lacking)

    monkeypatch.setattr(corruption, "ask_about", noting)
    made.clear()
    stage = Heard()
    assert measured(runs, stage=stage) == Told()
    assert made == few
    assert asked == 2 * [["latentbe"]] + 2 * [["latentbe", "kd"]]
    assert stage.messages == [f"corruption: resuming after 2 corruptions and severities of {runs[1]}"]
    assert stored(folder) == stored(alone)


def test_it_goes_on_after_an_interruption(alone: Path, copies: Copies, made: Sets, few: Sets) -> None:
    folder = copies("together", "latentbe", "kd")
    runs = [folder / "latentbe", folder / "kd"]
    with pytest.raises(KeyboardInterrupt):
        measured(runs, stage=Heard(3, interrupt))
    left = stored(folder)
    assert sorted(left) == [f"{name}/measurements/corruption.partial.json" for name in ("kd", "latentbe")]
    for content in left.values():
        assert list(json.loads(content)["parts"]) == [f"{name} {severity}" for name, severity in few[:3]]
    made.clear()
    assert measured(runs) == Told()
    assert made == few[3:]
    assert stored(folder) == stored(alone)


def no_number(path: Path) -> str:
    weights = safetensors.torch.load_file(path / "model.safetensors")
    weights = {name: value * float("nan") if value.is_floating_point() else value for name, value in weights.items()}
    safetensors.torch.save_file(weights, path / "model.safetensors")
    return r"corruption of .*kd: .*finite"


def no_place(path: Path) -> str:
    (path / "measurements").write_text("")
    return r"corruption of .*kd: out: cannot write to .*measurements"


def no_data(path: Path) -> str:
    edit(path, "recipe.json", lambda recipe: recipe["data"].update(source="npz:/no/such.npz"))
    return r"corruption of .*kd: npz:/no/such.npz"


def other_classes(path: Path) -> str:
    edit(path, "run.json", lambda about: about.update(class_names=[f"class {k}" for k in range(10)]))
    return r"corruption of .*kd: the run was trained on digits with 10 classes, but the data found now have 10"


def no_network(path: Path) -> str:
    edit(path, "run.json", lambda about: about.pop("statistics"))
    return "run.json: expected statistics in it, to build the network"


@pytest.mark.parametrize("spoil", [no_number, no_place, no_data, other_classes, no_network])
def test_one_that_fails_does_not_stop_the_other(alone: Path, copies: Copies, spoil: Callable[[Path], str]) -> None:
    folder = copies("together", "latentbe", "kd")
    sentence = spoil(folder / "kd")
    told = measured([folder / "kd", folder / "latentbe"])
    assert told.left_out == []
    (said,) = [*map(str, told.failed), *told.refused.values()]
    assert re.match(sentence, said)
    place = "latentbe/measurements/corruption.json"
    assert stored(folder) == {place: stored(alone)[place]}


def test_memory_that_is_not_there_for_one_does_not_stop_the_other(
    alone: Path, copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copies("together", "latentbe", "kd")

    def loading(path: Path, network: torch.nn.Module, doubt: str) -> None:
        if path.parent.name == "kd":
            raise torch.OutOfMemoryError("out of memory")
        load_network(path, network, doubt)

    monkeypatch.setattr("onefold.engine.served.load_network", loading)
    told = measured([folder / "kd", folder / "latentbe"])
    assert told == Told(refused={folder / "kd": f"{folder / 'kd'}: out of memory"})
    place = "latentbe/measurements/corruption.json"
    assert stored(folder) == {place: stored(alone)[place]}


def test_data_that_are_not_there_are_told_of_every_run(copies: Copies, few: Sets) -> None:  # noqa: ARG001
    folder = copies("together", "latentbe", "kd")
    runs = [folder / "latentbe", folder / "kd"]
    for run in runs:
        no_data(run)
    told = measured(runs)
    assert [(failure.what, failure.path) for failure in told.failed] == [("corruption", run) for run in runs]
    (sentence,) = listed(told.failed)
    assert sentence.startswith(f"corruption of {runs[0]}, {runs[1]}: npz:/no/such.npz: expected a file")
    assert stored(folder) == {}


def test_a_run_on_features_is_left_out(alone: Path, copies: Copies, tmp_path: Path) -> None:
    folder = copies("together", "kd")
    x, y = np.random.default_rng(0).normal(size=(40, 5)).astype(np.float32), np.arange(40) % 2
    np.savez(tmp_path / "features.npz", train_x=x, train_y=y, test_x=x, test_y=y)
    recipe = recipe_named("digits")
    data = dataclasses.replace(recipe.data, source=f"npz:{tmp_path}/features.npz")
    optim = dataclasses.replace(recipe.optim, warmup_epochs=0, batch_size=10)
    recipe = dataclasses.replace(recipe, network="mlp", members=2, epochs=1, eval_every=1, data=data, optim=optim)
    train_teachers(recipe, tmp_path / "features")
    told = measured([tmp_path / "features", folder / "kd"])
    (sentence,) = told.left_out
    assert "features was trained on features, but only images can be corrupted" in sentence
    assert (told.failed, told.refused) == ([], {})
    place = "kd/measurements/corruption.json"
    assert stored(folder) == {place: stored(alone)[place]}


def test_all_are_locked_and_one_that_is_does_not_stop_the_other(alone: Path, copies: Copies) -> None:
    folder = copies("together", "latentbe", "kd")
    runs = [folder / "latentbe", folder / "kd"]
    other = holding(runs[1])
    assert other.stdout is not None
    assert other.stdout.readline() == "ready\n"
    told = measured(runs)
    other.communicate()
    assert told == Told(refused={runs[1]: f"{runs[1]} is in use by another process; wait for it, or stop it"})
    place = "latentbe/measurements/corruption.json"
    assert stored(folder) == {place: stored(alone)[place]}
    (runs[0] / "measurements" / "corruption.json").unlink()
    said: list[str] = []
    assert measured(runs, stage=Heard(2, lambda: said.append(holding(*runs).communicate()[0]))) == Told()
    assert said == ["".join(f"{r} is in use by another process; wait for it, or stop it\n" for r in runs) + "ready\n"]
    assert stored(folder) == stored(alone)


def test_who_goes_together(copies: Copies, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = copies("together", "teachers", "latentbe", "be", "kd")
    teachers, latentbe, be, kd = (Folder(folder / name) for name in ("teachers", "latentbe", "be", "kd"))
    every = [teachers, latentbe, be, kd]
    assert groups.groups(every, MADE) == [every]
    assert groups.groups(every, Wanted(everything=True)) == [every]
    assert groups.groups(every, Wanted(costs=True, subspace=True)) == [[each] for each in every]
    # A teacher is measured with the folder it is in, and a run that is given twice is stored when it comes again.
    one = Folder(folder / "teachers" / "teacher-1")
    assert groups.groups([teachers, kd, one, kd], MADE) == [[teachers, kd], [one, kd]]
    nowhere = Folder(folder / "nowhere")
    assert groups.groups([kd, nowhere, be], MADE) == [[kd, be], [nowhere]]
    with monkeypatch.context() as patch:
        patch.setattr(groups, "FOLDERS", 3)
        assert groups.groups(every, MADE) == [every[:3], every[3:]]
    with monkeypatch.context() as patch:
        patch.setattr(groups, "BYTES", groups.size_of(latentbe) + groups.size_of(be))
        assert groups.size_of(teachers) > groups.BYTES
        assert groups.groups(every, MADE) == [[teachers], [latentbe, be], [kd]]
    edit(kd.path, "recipe.json", lambda recipe: recipe["data"].update(root="elsewhere"))
    assert groups.groups(every, MADE) == [every[:3], [kd]]
    assert groups.groups(every, Wanted(corruptions=True, data=DataOptions(root="here"))) == [every]
    edit(be.path, "recipe.json", lambda recipe: recipe["data"].update(skip_unreadable=True))
    assert groups.groups(every, MADE) == [every[:2], [be], [kd]]
    for key, value in (("class_names", ["a", "b"]), ("image_size", [9, 9]), ("statistics", [[0, 0, 0], [1, 1, 1]])):
        before = (latentbe.path / "run.json").read_text()
        edit(latentbe.path, "run.json", lambda about, key=key, value=value: about.update({key: value}))  # type: ignore[misc]
        assert groups.groups(every[:2], MADE) == [[teachers], [latentbe]]
        (latentbe.path / "run.json").write_text(before)
