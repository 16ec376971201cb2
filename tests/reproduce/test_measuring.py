"""What a table needs beside its runs is measured when they are done, once, and gone on with after a stop."""

from __future__ import annotations

import dataclasses
import importlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onefold.cli import main
from onefold.engine.measure import corruption, costs
from onefold.recipe import Recipe
from onefold.recipes import cifar10, digits
from onefold.reproduce import TABLES, Changes, Clock, Outcome, Table, measurings_of, reproduce, tasks_of
from onefold.reproduce import measuring as module
from onefold.reproduce.measuring import measure_all
from onefold.reproduce.tables import CORRUPTED, COSTS, Setting, StudentRow

CORRUPT = importlib.import_module("onefold.data.corrupt")  # the package; onefold.data has a function of that name
SETS = [("contrast", 2), ("contrast", 5), ("saturate", 2), ("saturate", 5)]


class Kept:
    """A stage that keeps what it is told."""

    def __init__(self) -> None:
        self.titles, self.messages, self.counts = list[str](), list[str](), list[tuple[int, int, str]]()

    def title(self, text: str) -> None:
        self.titles.append(text)

    def update(self, done: int, total: int, loss: float, lr: float, rate: float) -> None: ...

    def count(self, done: int, total: int, detail: str = "") -> None:
        self.counts.append((done, total, detail))

    def message(self, text: str) -> None:
        self.messages.append(text)


def small() -> Recipe:
    recipe = digits()
    optim = dataclasses.replace(recipe.optim, warmup_epochs=0, batch_size=100)
    return dataclasses.replace(recipe, network="mlp", epochs=1, eval_every=1, optim=optim)


ROWS = (StudentRow("kd", "kd", "none", 2), StudentRow("latentbe", "latentbe", "none", 2))
TINY = Table((Setting(small, 3, 2, ROWS),), 1, (CORRUPTED, COSTS))


@pytest.fixture(autouse=True)
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two corruptions at two severities, and few rounds of the clock."""
    monkeypatch.setattr(CORRUPT, "CORRUPTIONS", ("contrast",))
    monkeypatch.setattr(CORRUPT, "EXTRA", ("saturate",))
    monkeypatch.setattr(corruption, "SEVERITIES", (2, 5))
    monkeypatch.setattr(costs, "SECONDS", 0.0)
    monkeypatch.setattr(costs, "BATCHES", (1, 4))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("trained")
    assert not reproduce("tiny", out, stage=Kept(), table=dataclasses.replace(TINY, measures=())).outcome.failures
    return out


@pytest.fixture
def runs(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "runs"))


def stored(out: Path) -> dict[str, dict[str, Any]]:
    """Every measurement but the health check, which a run makes itself."""
    files = (path for path in out.rglob("measurements/**/*.json") if path.name != "health.json")
    return {str(path.relative_to(out)): json.loads(path.read_text()) for path in sorted(files)}


PLACES = [
    "digits/seed-0/kd-of-2/measurements",
    "digits/seed-0/latentbe-of-2/measurements",
    "digits/teachers/measurements/first-2",
]
ALONE = [f"digits/teachers/teacher-{m}/measurements" for m in range(2)]
EVERY = sorted(
    [f"{place}/{name}.json" for place in PLACES for name in ("corruption", "costs")]
    + [f"{a}/corruption.json" for a in ALONE]
)


def test_what_is_missing_is_measured_once(runs: Path) -> None:
    stage = Kept()
    made = reproduce("tiny", runs, stage=stage, table=TINY)
    assert not made.outcome.failures
    assert not made.outcome.stopped
    found = stored(runs)
    assert list(found) == EVERY
    for name, content in found.items():
        if name.endswith("corruption.json"):
            assert [(row["corruption"], row["severity"]) for row in content["rows"]] == SETS
    titles = list(dict.fromkeys(stage.titles))
    assert titles[:2] == [
        "measurements 1 to 3 of 6: corrupted images of digits, 2 teachers and 2 more",
        "measurement 4 of 6: inference time of digits, 2 teachers",
    ]
    assert titles[-1] == "measurement 6 of 6: inference time of digits, latentbe of 2, seed 0"
    assert (2, 4, "saturate 2") in stage.counts
    assert sum("generated from digits's test split" in message for message in stage.messages) == 1
    assert made.page is not None
    page = made.page.read_text()
    assert "Corrupted test images" in page
    assert "Run time" in page

    before = {path: path.stat().st_mtime_ns for path in runs.rglob("measurements/**/*.json")}
    again = Kept()
    reproduce("tiny", runs, stage=again, table=TINY)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert again.titles == again.messages == []
    # One that is lost comes back, and the others stay.
    lost = runs / PLACES[0] / "corruption.json"
    lost.unlink()
    reproduce("tiny", runs, stage=again, table=TINY)
    assert again.titles[0] == "measurement 1 of 1: corrupted images of digits, kd of 2, seed 0"
    assert {path: path.stat().st_mtime_ns for path in before if path != lost} == {
        path: time for path, time in before.items() if path != lost
    }
    assert stored(runs)[f"{PLACES[0]}/corruption.json"] == found[f"{PLACES[0]}/corruption.json"]


class Counting(Clock):
    """A clock on which the time is over after so many looks at it."""

    def __init__(self, looks: int) -> None:
        super().__init__(minutes=1)
        self.looks = looks

    def over(self) -> bool:
        self.looks -= 1
        return self.looks < 0


def test_it_stops_in_time_and_goes_on_to_the_same_end(
    runs: Path, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Path(shutil.copytree(trained, tmp_path / "whole"))
    reproduce("tiny", whole, stage=Kept(), table=dataclasses.replace(TINY, measures=(CORRUPTED,)))
    made: list[tuple[str, int]] = []
    usual = CORRUPT.corrupt

    def noting(images: Any, name: str, severity: int, seed: int, first: int = 0) -> Any:
        if first == 0:
            made.append((name, severity))
        return usual(images, name, severity, seed, first)

    monkeypatch.setattr(CORRUPT, "corrupt", noting)
    wanted = measurings_of(dataclasses.replace(TINY, measures=(CORRUPTED,)), tasks_of(TINY, runs, Changes()))
    stops = 0
    for _ in range(40):
        outcome = Outcome()
        measure_all(wanted, clock=Counting(2), stage=Kept(), outcome=outcome)
        assert not outcome.failures
        stops += outcome.stopped
        if not outcome.stopped:
            break
    assert stops == 3
    assert all(each.done for each in wanted)
    assert stored(runs) == stored(whole)
    assert made == SETS  # once for the teachers and two students


def test_time_that_is_over_leaves_the_measurements(runs: Path) -> None:
    outcome = Outcome()
    measure_all(measurings_of(TINY, tasks_of(TINY, runs, Changes())), clock=Counting(0), stage=Kept(), outcome=outcome)
    assert outcome.stopped
    assert stored(runs) == {}


def test_runs_that_are_not_there_are_left(runs: Path) -> None:
    (runs / "digits" / "seed-0" / "kd-of-2" / "result.json").unlink()
    tasks = tasks_of(TINY, runs, Changes())
    outcome = Outcome()
    measure_all(measurings_of(TINY, tasks), clock=Clock(), stage=Kept(), outcome=outcome)
    assert not outcome.failures
    assert not any("kd-of-2" in name for name in stored(runs))
    assert any("latentbe-of-2" in name for name in stored(runs))


def test_one_that_cannot_be_measured_does_not_hold_up_the_others(runs: Path) -> None:
    (runs / "digits" / "seed-0" / "kd-of-2" / "model.safetensors").write_bytes(b"no network")
    outcome = Outcome()
    measure_all(measurings_of(TINY, tasks_of(TINY, runs, Changes())), clock=Clock(), stage=Kept(), outcome=outcome)
    assert len(outcome.failures) == 2
    assert outcome.failures[0].startswith("corrupted images of digits, kd of 2, seed 0: ")
    assert list(stored(runs)) == [name for name in EVERY if "kd-of-2" not in name]


def published(folder: Path, count: int = 20) -> None:
    folder.mkdir(parents=True)
    draws = np.random.default_rng(0)
    np.save(folder / "labels.npy", np.tile(draws.integers(0, 10, count), 5))
    for name in CORRUPT.CORRUPTIONS:
        np.save(folder / f"{name}.npy", draws.integers(0, 256, (5 * count, 8, 8, 3), dtype=np.uint8))


def test_published_images_are_taken_where_they_are(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PUBLISHED", {"digits": "DIGITS-C"})
    monkeypatch.setattr(corruption, "SEVERITIES", range(1, 6))
    table = dataclasses.replace(TINY, measures=(CORRUPTED,))
    changes = Changes(rows=("kd",), root=str(tmp_path / "data"))
    stage = Kept()
    reproduce("tiny", runs, stage=stage, table=table, changes=changes)
    where = f"{PLACES[0]}/corruption.json"
    assert stored(runs)[where]["source"] == "generated, seed 0"
    published(tmp_path / "data" / "DIGITS-C")
    reproduce("tiny", runs, stage=stage, table=table, changes=changes)
    assert stored(runs)[where]["source"] == "DIGITS-C (published)"
    assert {row["count"] for row in stored(runs)[where]["rows"]} == {20}
    assert "DIGITS-C does not exist" in stage.messages[0]
    assert "DIGITS-C, as published" in stage.messages[-1]
    # Published images that are gone again: their numbers are the better ones.
    shutil.rmtree(tmp_path / "data" / "DIGITS-C")
    last = Kept()
    reproduce("tiny", runs, stage=last, table=table, changes=changes)
    assert last.titles == []
    assert stored(runs)[where]["source"] == "DIGITS-C (published)"


def test_which_tables_measure_what(tmp_path: Path) -> None:
    assert {name: table.measures for name, table in TABLES.items() if table.measures} == {
        "corrupted": (CORRUPTED,),
        "costs": (COSTS,),
    }
    wanted = measurings_of(TABLES["corrupted"], tasks_of(TABLES["corrupted"], tmp_path, Changes()))
    assert len(wanted) == 2 * (1 + 6 * 4)
    teachers = wanted[0]
    assert teachers.path == tmp_path / "cifar10" / "teachers"
    assert len(teachers.runs) == 4  # of the eight that another table has
    assert teachers.task.recipe.data == cifar10().data
    assert not any(each.ready or each.done for each in wanted)


def test_the_command_line_shows_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["reproduce", "costs", "--rows", "kd,be", "--out", str(tmp_path), "--dry-run"]
    assert main([*words, "--folders"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "inference time of" in line]
    assert [line.partition("  ")[0].strip() for line in lines] == [
        "inference time of cifar100, 4 teachers",
        "inference time of cifar100, kd of 4, seed 0",
        "inference time of cifar100, be of 4, seed 0",
    ]
    assert all("to do" in line for line in lines)
    assert main(words) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "inference time of" in line]
    assert [line.split()[-3:] for line in lines] == [["0", "of", "1"]] * 3
