"""Event files, read back with TensorBoard's own reader."""

from __future__ import annotations

import importlib.util
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import onefold
from onefold.cli import main
from onefold.engine import Interrupted, conduct
from onefold.engine.keeping.event_files import EventFiles
from onefold.run import RunFolder

Points = dict[str, list[tuple[int, float]]]


def points(folder: Path) -> Points:
    """Every scalar of every event file: tag to (step, value)."""
    reader: Any = EventAccumulator(str(folder), size_guidance={"scalars": 0}, purge_orphaned_data=False)
    reader.Reload()
    return {tag: [(e.step, e.value) for e in reader.Scalars(tag)] for tag in reader.Tags()["scalars"]}


def logged(run: RunFolder, kind: str, name: str) -> list[tuple[int, Any]]:
    return [(r["step"], pytest.approx(r[name], rel=1e-6)) for r in run.metrics() if r["kind"] == kind]


def test_the_event_files_say_what_the_log_says(make_job: Any, tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    job = make_job(log_every=2)
    conduct(job, run, log="tensorboard")
    found = points(run.path / "tensorboard")
    assert found["train/loss"] == logged(run, "train", "loss")
    assert [step for step, _ in found["train/lr"]] == [2, 4, 6, 8]
    assert found["train/lr"] == logged(run, "train", "lr")
    for name in ("acc", "nll", "ece"):
        assert found[f"val/{name}"] == logged(run, "val", name)
    assert {step for step, _ in found["val/acc"]} == {4, 8}
    assert all(rate > 0 for _, rate in found["train/examples_per_second"])


def test_a_run_that_goes_on_has_every_point_once(make_job: Any, tmp_path: Path) -> None:
    class Impatient:
        def update(self, done: int, *_: Any) -> None:
            if done == 6:
                os.kill(os.getpid(), signal.SIGINT)

        def message(self, text: str) -> None:
            pass

    run = RunFolder(tmp_path / "run")
    with pytest.raises(Interrupted):
        conduct(make_job(log_every=1), run, progress=Impatient(), log="tensorboard")
    assert [step for step, _ in points(run.path / "tensorboard")["train/loss"]] == [1, 2, 3, 4, 5, 6]
    # Points after the last checkpoint, as a run leaves them that was killed: they will be made again.
    run.log({"kind": "train", "step": 7, "epoch": 2, "loss": 99.0, "lr": 99.0, "seconds": 1e6})
    stale = EventFiles(run.path / "tensorboard", 16)
    stale.begin(run.metrics())
    stale.close()
    assert points(run.path / "tensorboard")["train/loss"][-1] == (7, 99.0)
    conduct(make_job(log_every=1), run, log="tensorboard")
    found = points(run.path / "tensorboard")
    assert [step for step, _ in found["train/loss"]] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert found["train/loss"] == logged(run, "train", "loss")
    assert found["val/acc"] == logged(run, "val", "acc")


def test_examples_a_second(tmp_path: Path) -> None:
    events = EventFiles(tmp_path, examples_a_step=16)
    train = {"kind": "train", "epoch": 1, "loss": 1.0, "lr": 0.1}
    events.begin([train | {"step": 10, "seconds": 2.0}])
    events.add(train | {"step": 30, "seconds": 3.0})
    events.close()
    assert points(tmp_path)["train/examples_per_second"] == [(10, 80.0), (30, 320.0)]


def test_what_cannot_be_written_is_refused_before_training(
    make_job: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ValueError, match="log: expected 'tensorboard' or None, got 'wandb'"):
        conduct(make_job(), RunFolder(tmp_path / "run"), log="wandb")
    with pytest.raises(ValueError, match="log: event files are written into the run folder"):
        onefold.distill(None, make_job().net, None, method="supervised", perturbation="none", log="tensorboard")
    there = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "tensorboard" else there(name))
    with pytest.raises(ValueError, match=r"run: .*pip install .*tensorboard$"):
        conduct(make_job(), RunFolder(tmp_path / "run"), log="tensorboard")
    assert not (tmp_path / "run").exists()
    assert main(["train", "digits", "--log", "tensorboard", "--out", str(tmp_path / "teachers")]) == 2
    assert "the package tensorboard is not installed; run: " in capsys.readouterr().err
    assert main(["train", "digits", "--log", "wandb"]) == 2
    assert "--log: expected tensorboard or None, got 'wandb'" in capsys.readouterr().err


def test_from_the_command_line(tmp_path: Path) -> None:
    words = ["--network", "mlp", "--epochs", "1", "--optim.warmup-epochs", "0", "--log", "tensorboard"]
    assert main(["train", "digits", "--recipe.members", "2", "--out", str(tmp_path / "t"), *words]) == 0
    words += ["--recipe.members", "2", "--teachers", str(tmp_path / "t")]
    assert main(["distill", "digits", "--out", str(tmp_path / "s"), *words]) == 0
    for run in ("t/teacher-0", "t/teacher-1", "s"):
        found = points(tmp_path / run / "tensorboard")
        assert found["train/loss"] == logged(RunFolder(tmp_path / run), "train", "loss")
        assert "val/acc" in found
