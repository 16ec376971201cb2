"""`onefold evaluate` with everything that asks the networks again, from training to the measurements on the disk."""

from __future__ import annotations

import importlib
import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onefold.cli import main
from onefold.cli.arguments import parse
from onefold.cli.requests import Evaluate
from onefold.cli.run_measure import wanted_of
from onefold.engine.measure import corruption, subspace

Capture = pytest.CaptureFixture[str]
QUICK = ["--network", "wrn10x1", "--epochs", "1", "--optim.warmup-epochs", "0", "--recipe.members", "2"]
QUICK += ["--eval-every", "1", "--diversity-every", "1"]
NAMES = ("corruption", "costs", "health", "ood", "subspace")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("runs")
    teachers, student = folder / "teachers", folder / "student"
    assert main(["train", "digits", *QUICK, "--out", str(teachers)]) == 0
    assert main(["distill", "digits", "--teachers", str(teachers), *QUICK, "--out", str(student)]) == 0
    return teachers, student


def read(run: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "measurements" / f"{name}.json").read_text())
    return found


def test_all(runs: tuple[Path, Path], tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.import_module("onefold.data.corrupt"), "CORRUPTIONS", ("fog",))
    monkeypatch.setattr(importlib.import_module("onefold.data.corrupt"), "EXTRA", ("saturate",))
    monkeypatch.setattr(corruption, "SEVERITIES", (1, 3))
    monkeypatch.setattr(subspace, "T", [-0.5, 0.0, 0.5, 1.0, 1.5])
    teachers, student = runs
    np.savez(tmp_path / "noise.npz", x=np.random.default_rng(0).integers(0, 256, (30, 9, 9, 3), dtype=np.uint8))
    words = ["evaluate", str(teachers), str(student), "--all", "--ood", f"noise=npz:{tmp_path}/noise.npz"]
    words += ["--images", "50", "--device", "cpu"]
    kinds = [json.loads(line)["kind"] for line in (student / "metrics.jsonl").read_text().splitlines()]
    assert {"diversity", "perturbation"} <= set(kinds)
    assert read(student, "health")["split"] == "val"
    capsys.readouterr()
    assert main(words) == 0
    told = capsys.readouterr()
    assert "DE-1" in told.out
    assert f"{teachers}: teachers share no weights, so there is no line between members to measure\n" in told.err
    check_what_is_told(student, told.out, told.err)
    for name in NAMES:
        assert read(student, name)["version"] == 1
    for name in ("first-2/corruption", "first-2/costs", "first-2/ood", "members"):
        assert read(teachers, name)["version"] == 1
    rows = read(student, "corruption")["rows"]
    assert [(row["corruption"], row["severity"]) for row in rows] == [
        (n, s) for n in ("fog", "saturate") for s in (1, 3)
    ]
    assert all(0 <= row["acc"] <= 1 and row["count"] == 1197 for row in rows)
    assert read(teachers / "teacher-1", "corruption")["rows"] != rows
    found = read(student, "ood")
    assert sum(found["sets"][0]["entropy"]["counts"]) == found["sets"][0]["count"] == 30
    assert set(found["sets"][0]["scores"]["max_probability"]) == {"auroc", "aupr", "fpr95"}
    line = read(student, "subspace")
    assert "NLL on the line through two members, on 50 of 1,197 test images" in told.out
    assert line["count"] == {"train": 50, "test": 50, "plane": 50}
    assert (line["average"]["t"], line["plane"]) == (0.5, None)
    # Two members: the average lies on the line.
    for curve in line["curves"]:
        key = curve["split"] + ("_reestimated" if curve["reestimated"] else "")
        assert line["average"][key]["nll"] == pytest.approx(curve["nll"][2], rel=1e-5)
    assert [row["members"] for row in read(teachers, "members")["rows"]] == [1, 2]
    before = {path: path.stat().st_mtime_ns for path in student.glob("measurements/*")}
    assert main(words) == 0
    assert capsys.readouterr().err.count("already stored") == 8
    assert before == {path: path.stat().st_mtime_ns for path in student.glob("measurements/*")}


def three_figures(milliseconds: float) -> set[str]:
    """In milliseconds or microseconds, whichever suits the longest of the column."""
    return {f"{t:.{max(0, 2 - math.floor(math.log10(t)))}f}" for t in (milliseconds, 1000 * milliseconds)}


def check_what_is_told(student: Path, out: str, err: str) -> None:
    """The numbers in the files of the run."""
    for title in ("Averaging health check", "Run time", "Corrupted test images", "Out of distribution", "on the line"):
        assert out.count(title) == 1
    health, line = read(student, "health"), read(student, "subspace")
    ways = [*health["members"], health["ensemble"], health["collapsed"], health["collapsed_reestimated"]]
    for metrics in ways:
        assert f"{100 * metrics['acc']:.2f}" in out
        assert re.search(rf" {metrics['nll']:.4f} +{metrics['ece']:.4f} ", out)
    (outside,) = read(student, "ood")["sets"]
    (row,) = [text for text in out.splitlines() if text.startswith(" LatentBE + TDiv-SDiv: noise")]
    areas = [outside["scores"][name]["auroc"] for name in ("entropy", "max_probability")]
    assert row.split()[-2:] == [f"{area:.4f}" for area in areas]
    assert "AUPR" not in out
    fog = [row for row in read(student, "corruption")["rows"] if row["corruption"] == "fog"]
    assert f"{sum(row['nll'] for row in fog) / len(fog):.4f}" in out
    for row in read(student, "costs")["inference"]:
        assert row["what"] != "collapsed" or three_figures(row["ms_per_image"]) & {*out.split()}
    assert f"{line['average']['test']['nll']:.4f}" in out
    said = health["warning"] or "averaging the members does not hurt on the test split"
    assert f"LatentBE + TDiv-SDiv: {said}\n" in err


@pytest.mark.parametrize("warning", [None, "averaging hurts: on test the collapsed network has ACC 10.00%"])
def test_only_what_was_asked_for_is_shown(
    warning: str | None, runs: tuple[Path, Path], tmp_path: Path, capsys: Capture
) -> None:
    student = Path(shutil.copytree(runs[1], tmp_path / "student"))
    capsys.readouterr()
    assert main(["evaluate", str(student), "--health"]) == 0
    told = capsys.readouterr()
    assert "Averaging health check" in told.out
    assert "Run time" not in told.out
    path = student / "measurements" / "health.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"warning": warning}))
    assert main(["evaluate", str(student), "--health"]) == 0
    said = warning or "averaging the members does not hurt on the test split"
    assert f"LatentBE + TDiv-SDiv: {said}\n" in capsys.readouterr().err
    assert main(["evaluate", str(student)]) == 0
    assert "Averaging" not in capsys.readouterr().out


def test_runs_together(
    runs: tuple[Path, Path], tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = importlib.import_module("onefold.data.corrupt")
    usual, made = package.corrupt, list[str]()

    def second_stops(images: Any, name: str, severity: int, seed: int, first: int) -> Any:
        """At the first time."""
        made.extend([name] * (first == 0))
        if made == ["fog", "contrast"]:
            raise KeyboardInterrupt
        return usual(images, name, severity, seed, first)

    monkeypatch.setattr(package, "CORRUPTIONS", ("fog", "contrast"))
    monkeypatch.setattr(package, "EXTRA", ())
    monkeypatch.setattr(corruption, "SEVERITIES", (2,))
    monkeypatch.setattr(package, "corrupt", second_stops)
    one, two = (Path(shutil.copytree(runs[1], tmp_path / name)) for name in ("one", "two"))
    for run in (one, two):
        shutil.rmtree(run / "measurements")
    words = ["evaluate", str(one), str(two), "--corruptions", "--device", "cpu"]
    assert main(words) == 130
    assert "onefold: interrupted; run the same command again to measure the rest\n" in capsys.readouterr().err
    assert main(words) == 0
    told = capsys.readouterr().err
    assert made == ["fog", "contrast", "contrast"]
    assert told.count("resuming after 1 corruptions and severities") == 2
    assert "2 runs: corruptions: 100%" in told
    assert read(one, "corruption")["rows"] == read(two, "corruption")["rows"]
    # One that cannot be loaded does not stop the other.
    (one / "model.safetensors").write_bytes(b"no network")
    (two / "measurements" / "corruption.json").unlink()
    assert main(words) == 2
    assert "onefold: not everything could be measured:\n" in capsys.readouterr().err
    assert len(read(two, "corruption")["rows"]) == 2


def test_what_fails_does_not_keep_the_rest(runs: tuple[Path, Path], capsys: Capture) -> None:
    _, student = runs
    for path in student.glob("measurements/costs.json"):
        path.unlink()
    assert main(["evaluate", str(student), "--costs", "--ood", "lsun=folder:/no/where", "--device", "cpu"]) == 2
    told = capsys.readouterr().err
    assert "lsun cannot be measured: folder:/no/where: expected a folder of images" in told
    assert "Traceback" not in told
    assert (student / "measurements" / "costs.json").exists()


def test_data_are_fetched_by_the_flag_that_training_has() -> None:
    for words in (["--download"], ["--data.download"], []):
        request = parse(["evaluate", "a", *words])
        assert isinstance(request, Evaluate)
        assert wanted_of(request).data.download is bool(words)


def test_sets_of_other_images() -> None:
    request = parse(["evaluate", "a", "b", "--ood", "svhn", "--ood", "lsun=folder:x", "--data.root", "d"])
    assert isinstance(request, Evaluate)
    assert (request.runs, request.ood, request.data.root) == (("a", "b"), ("svhn", "lsun=folder:x"), "d")


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--ood", "a=svhn", "--ood", "a=digits"], "--ood: expected different names, got 'a' twice"),
        (["--ood", "=svhn"], "--ood: expected NAME=SPEC"),
        (["--corruptions", "--corrupted", "x"], "--corrupted: expected either a folder of published images or --corr"),
        (["--corrupted", "no/where"], "corrupted: expected a folder such as CIFAR-10-C"),
        (["--images", "1"], "images: expected at least 2, got 1"),
        (["--device", "abacus"], "device: expected auto, cpu, cuda"),
        (["--subspaces"], "there is no flag --subspaces; did you mean --subspace?"),
    ],
)
def test_refused(flags: list[str], sentence: str, runs: tuple[Path, Path], capsys: Capture) -> None:
    capsys.readouterr()
    assert main(["evaluate", str(runs[1]), *flags]) == 2
    assert sentence in capsys.readouterr().err


def test_what_failed_now_is_not_shown_from_earlier(
    runs: tuple[Path, Path], tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.import_module("onefold.data.corrupt"), "CORRUPTIONS", ("fog",))
    monkeypatch.setattr(importlib.import_module("onefold.data.corrupt"), "EXTRA", ())
    monkeypatch.setattr(corruption, "SEVERITIES", (1,))
    student = Path(shutil.copytree(runs[1], tmp_path / "student"))
    np.savez(tmp_path / "noise.npz", x=np.random.default_rng(0).integers(0, 256, (30, 9, 9, 3), dtype=np.uint8))
    words = ["evaluate", str(student), "--device", "cpu"]
    assert main([*words, "--corruptions", "--costs", "--ood", f"noise=npz:{tmp_path}/noise.npz"]) == 0
    capsys.readouterr()
    (tmp_path / "nothing").mkdir()
    assert main([*words, "--corrupted", str(tmp_path / "nothing"), "--costs"]) == 2
    told = capsys.readouterr().out
    assert "Corrupted test images" not in told
    assert "Run time" in told  # is there already
    assert main([*words, "--ood", "noise=folder:/no/where"]) == 2
    assert "Out of distribution" not in capsys.readouterr().out
    assert main([*words, "--ood", "gone=folder:/no/where", "--ood", f"noise=npz:{tmp_path}/noise.npz"]) == 2
    told = capsys.readouterr().out
    assert "LatentBE + TDiv-SDiv: noise" in told
    assert "gone" not in told


def test_weights_that_are_gone(runs: tuple[Path, Path], tmp_path: Path, capsys: Capture) -> None:
    student = Path(shutil.copytree(runs[1], tmp_path / "student"))
    assert main(["evaluate", str(student), "--costs", "--device", "cpu"]) == 0
    (student / "model.safetensors").unlink()
    capsys.readouterr()
    assert main(["evaluate", str(student), "--costs", "--device", "cpu"]) == 2
    told = capsys.readouterr()
    assert f"{student}/model.safetensors is gone, and with it the network's weights" in told.err
    assert "Errno" not in told.err
    assert "time" not in told.out.lower()


def test_one_reason_for_many_runs_is_told_once(runs: tuple[Path, Path], tmp_path: Path, capsys: Capture) -> None:
    for k in range(5):
        shutil.copytree(runs[1], tmp_path / "runs" / f"student-{k}")
    capsys.readouterr()
    assert main(["evaluate", str(tmp_path / "runs"), "--ood", "lsun=folder:/no/where", "--device", "cpu"]) == 2
    told = capsys.readouterr().err
    assert told.count("expected a folder of images") == 1
    assert f"out of distribution of {tmp_path}/runs/student-0, " in told
    assert "and 2 more: lsun cannot be measured" in told
