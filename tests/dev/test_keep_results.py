"""Runs that are kept say the same as the runs themselves, in every table and picture."""

from __future__ import annotations

import csv
import dataclasses
import importlib
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from onefold.cli import main
from onefold.engine import evaluate_run
from onefold.engine.measure import corruption, subspace
from onefold.engine.measure.inputs import DataOptions
from onefold.engine.measure.measure import Wanted, measure_runs
from onefold.engine.measure.subject import Folder
from onefold.recipe import Recipe
from onefold.recipes import digits
from onefold.report import Section, collect, report, sections
from onefold.report.pictures import pictures
from onefold.reproduce import Table, reproduce
from onefold.reproduce.tables import Setting, StudentRow
from onefold.run import RunFolder

Script = Callable[[str], ModuleType]
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
FILES = {"recipe.json", "run.json", "env.json", "result.json", "metrics.jsonl", "test.npz", "val.npz"}
FILES |= {f"{name}.json" for name in ("corruption", "costs", "health", "ood", "subspace", "members")}


class Quiet:
    """Progress of any kind that nobody looks at."""

    def title(self, text: str) -> None: ...

    def update(self, *_: float) -> None: ...

    def count(self, *_: object) -> None: ...

    def message(self, text: str) -> None: ...


def small() -> Recipe:
    recipe = digits()
    optim = dataclasses.replace(recipe.optim, warmup_epochs=0, batch_size=25)
    return dataclasses.replace(recipe, network="mlp", epochs=4, eval_every=1, diversity_every=1, optim=optim)


ROWS = [("kd", "none"), ("be", "none"), ("latentbe", "tdiv-sdiv")]
STUDENTS = tuple(StudentRow(method if p == "none" else f"{method}-{p}", method, p, 3) for method, p in ROWS)
TINY = Table((Setting(small, 3, 3, STUDENTS),), seeds=2)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three teachers and six students of them, measured in every way."""
    out = tmp_path_factory.mktemp("runs") / "reproduce"
    reproduce("tiny", out, stage=Quiet(), table=TINY)
    noise = tmp_path_factory.mktemp("noise") / "noise.npz"
    np.savez(noise, x=np.random.default_rng(0).integers(0, 256, (60, 8, 8), dtype=np.uint8))
    asked = Wanted(everything=True, ood={"noise": f"npz:{noise}"}, images=50, data=DataOptions())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(importlib.import_module("onefold.data.corrupt"), "CORRUPTIONS", ("fog",))
        patch.setattr(importlib.import_module("onefold.data.corrupt"), "EXTRA", ("saturate",))
        patch.setattr(corruption, "SEVERITIES", (1, 3))
        patch.setattr(subspace, "T", [-0.5, 0.0, 0.5, 1.0, 1.5])
        patch.setattr(subspace, "GRID", [0.0, 0.5, 1.0])
        folders = [out / "digits" / "teachers", *sorted((out / "digits").glob("seed-*/*"))]
        told = measure_runs([Folder(path) for path in folders], asked, torch.device("cpu"), lambda _: Quiet())
        assert (told.failed, told.refused) == ([], {})
    assert main(["evaluate", str(out / "digits" / "teachers")]) == 0  # writes members.json
    return out


@pytest.fixture(scope="module")
def kept(runs: Path, script: Script, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("kept") / "results"
    assert script("keep_results").main([str(runs), "--out", str(out)]) == 0
    return out


def only(folder: Path) -> Section:
    answers, notes = collect([folder])
    assert notes == []
    (section,) = sections(answers)
    return section


def test_nothing_large_and_no_places(runs: Path, kept: Path) -> None:
    files = [path for path in kept.rglob("*") if path.is_file()]
    assert {path.name for path in files} == FILES
    assert {path.parent.relative_to(kept) for path in files if path.name == "result.json"} == {
        path.parent.relative_to(runs) for path in runs.rglob("result.json")
    }
    for path in files:
        assert path.stat().st_size < 1_000_000
        if path.suffix != ".npz":
            assert "/tmp" not in path.read_text()
            assert str(runs.parent) not in path.read_text()


def test_every_table_says_the_same(runs: Path, kept: Path, tmp_path: Path) -> None:
    tables = []
    for name, folder in (("a", runs), ("b", kept)):
        page, _ = report([folder], tmp_path / f"{name}.csv", format="csv")
        tables.append(list(csv.DictReader(page.read_text().splitlines())))
    corruption = {"corruption", *(f"corruption-{metric}" for metric in ("acc", "nll", "ece"))}
    assert {line["table"] for line in tables[0]} == {
        "results",
        "ensembles",
        "ood",
        "ood-all",
        "health",
        "costs",
    } | corruption
    assert len(tables[0]) == len(tables[1]) > 100
    for ours, theirs in zip(*tables, strict=True):
        for key, value in ours.items():
            if key in ("mean", "deviation") and value:
                # What is measured once more from predictions, to a two-hundredth of a percent; the rest as it was.
                exact = ours["table"] not in ("results", "ensembles") or "ACC" in ours["column"]
                assert float(theirs[key]) == pytest.approx(float(value), abs=0 if exact else 5e-5, rel=1e-9), ours
            else:
                assert theirs[key] == value


def test_every_picture_shows_the_same(runs: Path, kept: Path) -> None:
    ours, theirs = pictures(only(runs)), pictures(only(kept))
    names = {"reliability", "learning", "corruption", "entropy", "subspace", "plane-0", "diversity"}
    assert names | {"perturbation"} <= {picture.name for picture in ours}
    assert [picture.name for picture in ours] == [picture.name for picture in theirs]
    for one, other in zip(ours, theirs, strict=True):
        assert one.legend == other.legend
        for a, b in zip(one.panels, other.panels, strict=True):
            assert NUMBER.sub("#", a.description) == NUMBER.sub("#", b.description)
            numbers = [[float(word) for word in NUMBER.findall(text)] for text in (a.description, b.description)]
            assert numbers[0] == pytest.approx(numbers[1], rel=2e-4, abs=1e-3)


def test_evaluation_and_the_page(runs: Path, kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in [kept / "digits" / "teachers", *(path.parent for path in kept.rglob("result.json"))]:
        found, wanted = evaluate_run(folder), evaluate_run(runs / folder.relative_to(kept))
        assert found["acc"] == wanted["acc"]
        for name in ("nll", "ece", "cnll", "cece", "brier", "entropy"):
            assert found[name] == pytest.approx(wanted[name], abs=5e-5)
        if folder.name != "teachers":  # in full, and not from the compact predictions
            assert RunFolder(folder).result == RunFolder(runs / folder.relative_to(kept)).result
    words = [str(kept / "digits" / "teachers"), str(kept / "digits" / "seed-0" / "kd-of-3")]
    assert main(["evaluate", *words]) == 0
    assert "DE-2" in capsys.readouterr().out
    assert main(["report", str(kept), "--out", str(tmp_path / "page.html")]) == 0
    assert "Computed from compact predictions" in (tmp_path / "page.html").read_text()
    report([runs], tmp_path / "full.html")
    assert "compact" not in (tmp_path / "full.html").read_text()


def test_the_log_is_thinned_to_epochs(runs: Path, kept: Path) -> None:
    for path in kept.rglob("metrics.jsonl"):
        lines, whole = RunFolder(path.parent).metrics(), RunFolder(runs / path.parent.relative_to(kept)).metrics()
        assert [line for line in lines if line["kind"] != "train"] == [
            line for line in whole if line["kind"] != "train"
        ]
        train = [line for line in lines if line["kind"] == "train"]
        assert [line["epoch"] for line in train] == [1, 2, 3, 4]
        assert train[-1]["seconds"] == max(line["seconds"] for line in whole if line["kind"] == "train")


def test_thinned(script: Script) -> None:
    records: list[dict[str, Any]] = []
    for step in range(1, 1001):
        records.append({"kind": "train", "step": step, "epoch": (step + 9) // 10, "loss": 1 / step, "seconds": step})
        if step % 10 == 0:
            records.append({"kind": "val", "step": step, "epoch": step // 10, "nll": 2 / step})
    records.append({"kind": "result", "step": 1000, "nll": 0.1})
    thin = script("keep_results").thinned(records)
    assert len(thin) == 100 + 100 + 1
    assert [line["step"] for line in thin] == sorted(line["step"] for line in thin)
    for epoch in range(1, 101):
        losses = [1 / step for step in range(10 * epoch - 9, 10 * epoch + 1)]
        (line,) = [each for each in thin if each["kind"] == "train" and each["epoch"] == epoch]
        assert line["loss"] == pytest.approx(sum(losses) / 10)
        assert (line["step"], line["lines"]) == (10 * epoch, 10)
    assert script("keep_results").thinned(thin) == thin


def test_where_things_lay_is_not_kept(script: Script) -> None:
    clean = script("keep_results").without_places
    given = {"command": ["/opt/x/bin/onefold", "--out=/a/b/c", "runs/here"], "spec": "npz:/d/e.npz", "n": 3, "r": "1/4"}
    given |= {"teachers": "/a/b/teachers/", "home": "~/data/x", "gpu": "A GPU, 3/4"}
    assert clean(given) == {
        "command": ["onefold", "--out=c", "runs/here"],
        "spec": "npz:e.npz",
        "n": 3,
        "r": "1/4",
        "teachers": "teachers",
        "home": "x",
        "gpu": "A GPU, 3/4",
    }


def unfinished(runs: Path, folder: Path, lines: int) -> Path:
    """A copy of a run that has not come far."""
    run = folder / "digits" / "seed-0" / "kd-of-3"
    shutil.copytree(runs / "digits" / "seed-0" / "kd-of-3", run)
    for name in ("result.json", "predictions", "measurements"):
        path = run / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    log = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text("".join(log[:lines]))
    return run


def test_unfinished_runs(runs: Path, script: Script, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep = script("keep_results").main
    out, place = tmp_path / "results", tmp_path / "results" / "digits" / "seed-0" / "kd-of-3"
    assert keep([str(unfinished(runs, tmp_path / "a", 3)), "--out", str(out)]) == 0
    assert not RunFolder(place).finished
    reached = RunFolder(place).metrics()[-1]["step"]
    assert f"unfinished, at step {reached}" in capsys.readouterr().out
    _, notes = collect([out])
    assert len(notes) == 1
    assert "is not finished (step" in notes[0]
    # One that is further replaces it, and is not replaced by one that is less far.
    assert keep([str(unfinished(runs, tmp_path / "b", 5)), "--out", str(out)]) == 0
    assert RunFolder(place).metrics()[-1]["step"] > reached
    assert keep([str(runs / "digits" / "seed-0" / "kd-of-3"), "--out", str(out)]) == 0
    assert RunFolder(place).finished
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    capsys.readouterr()
    assert keep([str(tmp_path / "b"), "--out", str(out)]) == 0
    assert "kept as it was" in capsys.readouterr().out
    assert keep([str(runs / "digits" / "seed-0" / "kd-of-3"), "--out", str(out)]) == 0
    assert before == {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}


def test_what_cannot_be_kept(runs: Path, script: Script, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep = script("keep_results").main
    out = str(tmp_path / "results")
    unfinished(runs, tmp_path / "a", 3)
    assert keep([str(runs), str(tmp_path / "a"), "--out", out]) == 2
    assert "several that would be kept as" in capsys.readouterr().err
    assert keep([str(tmp_path / "nothing"), "--out", out]) == 2
    assert "there is no such folder" in capsys.readouterr().err
    # Another experiment in the same place, and a damaged run: the others are kept.
    shutil.copytree(runs, tmp_path / "b")
    (tmp_path / "b" / "digits" / "teachers" / "teacher-1" / "metrics.jsonl").write_text("no JSON\n")
    recipe = json.loads((tmp_path / "b" / "digits" / "seed-1" / "be-of-3" / "recipe.json").read_text())
    assert keep([str(runs / "digits" / "seed-1" / "be-of-3"), "--out", out]) == 0
    recipe["optim"]["lr"] = 0.5
    (tmp_path / "b" / "digits" / "seed-1" / "be-of-3" / "recipe.json").write_text(json.dumps(recipe))
    assert keep([str(tmp_path / "b"), "--out", out]) == 0
    told = capsys.readouterr().out
    assert "was started with different settings" in told
    assert "expected JSON in line 1" in told
    assert sum(line.count(": finished; ") for line in told.splitlines()) == 1 + 7


def test_predictions_that_would_change_are_left_out(
    runs: Path, script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module, run = script("keep_results"), runs / "digits" / "seed-0" / "kd-of-3"
    place = tmp_path / "digits" / "seed-0" / "kd-of-3"
    with monkeypatch.context() as patch:
        patch.setattr(module, "TOLERANCE", -1.0)
        assert module.main([str(run), "--out", str(tmp_path)]) == 0
    assert "predictions are left out, for they would change nll by" in capsys.readouterr().out
    assert not (place / "predictions").exists()
    assert RunFolder(place).finished
    with monkeypatch.context() as patch:
        patch.setattr(module, "LIMIT", 1000)
        assert module.main([str(run), "--out", str(tmp_path)]) == 0
    assert "do not fit into 1,000 bytes" in capsys.readouterr().out
    assert not (place / "predictions").exists()
