"""Runs move: packed at any moment, unpacked on another machine and under another path, they go on with the same command
to the same end. Finished ones need nothing but their result and weights."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import shutil
import tarfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from onefold.cli import main
from onefold.engine.keeping.writer import Writer
from onefold.recipe import Recipe
from onefold.recipes import digits
from onefold.reproduce import TABLES, Changes, Clock, Table, reproduce, tasks_of
from onefold.reproduce.carry import carry_out
from onefold.reproduce.tables import Setting, StudentRow
from onefold.run import RunFolder


def small() -> Recipe:
    recipe = digits()
    optim = dataclasses.replace(recipe.optim, warmup_epochs=0, batch_size=50)
    return dataclasses.replace(recipe, network="mlp", epochs=3, eval_every=1, diversity_every=1, optim=optim)


ROWS = (StudentRow("kd", "kd", "none", 2), StudentRow("latentbe-tdiv-sdiv", "latentbe", "tdiv-sdiv", 2))
TINY = Table((Setting(small, 2, 2, ROWS),), seeds=1)
HERE = Changes(root="data", device="auto")
THERE = Changes(root="/mnt/other/place", device="cpu", download=True)


class Quiet:
    def __init__(self) -> None:
        self.titles, self.messages = list[str](), list[str]()

    def title(self, text: str) -> None:
        self.titles.append(text)

    def update(self, *_: float) -> None: ...

    def count(self, done: int, total: int, detail: str = "") -> None: ...

    def message(self, text: str) -> None:
        self.messages.append(text)


def outcome_of(root: Path) -> dict[str, dict[str, object]]:
    """Weights, predictions and everything that was logged, but for the time it took."""
    found: dict[str, dict[str, object]] = {}
    for path in sorted(root.rglob("result.json")):
        run = RunFolder(path.parent)
        weights = {name: value.numpy().tobytes() for name, value in load_file(run.model).items()}
        predictions = {split: run.predictions_file(split).read_bytes() for split in ("val", "test")}
        log = [{k: v for k, v in line.items() if k != "seconds"} for line in run.metrics()]
        found[str(run.path.relative_to(root))] = weights | predictions | {"log": log, "metrics": run.result["metrics"]}
    return found


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs of a table that nothing has interrupted."""
    out = tmp_path_factory.mktemp("done")
    assert not reproduce("tiny", out, stage=Quiet(), table=TINY, changes=HERE).outcome.failures
    assert len(outcome_of(out)) == 4
    return out


class Packing(Clock):
    """A clock that is looked at after every step, and packs the folder at one of these moments while the runs go on."""

    def __init__(self, folder: Path, moment: int) -> None:
        super().__init__()
        self.folder, self.left, self.packed = folder, moment, io.BytesIO()

    def over(self) -> bool:
        self.left -= 1
        if self.left == 0:
            with tarfile.open(fileobj=self.packed, mode="w") as archive:
                archive.add(self.folder, arcname="runs")
        return False


@pytest.mark.parametrize("moment", [27, 80, 110])
def test_packed_at_any_moment(done: Path, tmp_path: Path, moment: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two writes: a copy in which files are missing that others refer to is refused, as a test below has it."""
    monkeypatch.setattr(Writer, "later", lambda _, write: write())
    here, there = tmp_path / "here", tmp_path / "another" / "machine"
    here.mkdir()
    clock = Packing(here, moment)
    carry_out(tasks_of(TINY, here, HERE), at_once=2, clock=clock, stage=Quiet())
    assert clock.left < 0, "the moment was after the end"
    clock.packed.seek(0)
    with tarfile.open(fileobj=clock.packed) as archive:
        archive.extractall(there, filter="data")
    shutil.rmtree(here)  # nothing may be looked for where the runs have been
    begun = [
        path.parent for path in there.rglob("last.safetensors") if not (path.parent.parent / "result.json").exists()
    ]
    for folder in begun:  # the log is ahead of the checkpoint, and torn
        with (folder.parent / "metrics.jsonl").open("a") as log:
            log.write(json.dumps({"kind": "train", "step": 10**6, "epoch": 3, "loss": 9.0}) + '\n{"kind": "val", "st')
        (folder / "last.safetensors.writing").write_bytes(b"half of one")
    stage = Quiet()
    made = reproduce("tiny", there / "runs", stage=stage, table=TINY, changes=THERE)
    assert not made.outcome.failures
    assert outcome_of(there / "runs") == outcome_of(done)
    assert sum("resuming after step" in text for text in stage.messages) == len(begun)
    assert begun


class Copying(Packing):
    """The same, file by file, and whatever goes away meanwhile is not in the copy."""

    def over(self) -> bool:
        self.left -= 1
        if self.left == 0:
            for path in sorted(self.folder.rglob("*")):
                to = self.folder.with_name("copy") / path.relative_to(self.folder)
                with contextlib.suppress(FileNotFoundError):
                    to.mkdir(parents=True, exist_ok=True) if path.is_dir() else shutil.copyfile(path, to)
        return False


@pytest.mark.parametrize("moment", [9, 17, 25, 57, 89])
def test_copied_beside_a_write(done: Path, tmp_path: Path, moment: int) -> None:
    """The copy goes on to the same end, or is refused with what to do."""
    here = tmp_path / "here"
    here.mkdir()
    carry_out(tasks_of(TINY, here, HERE), at_once=2, clock=Copying(here, moment), stage=Quiet())
    try:
        made = reproduce("tiny", tmp_path / "copy", stage=Quiet(), table=TINY, changes=THERE)
    except ValueError as refused:
        assert "copy the folder again" in str(refused)  # noqa: PT017
        return
    if made.outcome.failures:
        assert all("copy the folder again" in text or "not there" in text for text in made.outcome.failures)
    else:
        assert outcome_of(tmp_path / "copy") == outcome_of(done)


def finished(done: Path, folder: Path) -> Path:
    shutil.copytree(done, folder)
    return folder


def test_finished_runs_need_no_checkpoints(done: Path, tmp_path: Path) -> None:
    """They are left alone, and teach."""
    out = finished(done, tmp_path / "runs")
    for path in list(out.rglob("checkpoints")):
        shutil.rmtree(path)
    stage = Quiet()
    made = reproduce("tiny", out, stage=stage, table=TINY, changes=THERE)
    assert stage.titles == []
    assert made.page is not None
    shutil.rmtree(out / "digits" / "seed-0" / "latentbe-tdiv-sdiv-of-2")
    reproduce("tiny", out, stage=stage, table=TINY, changes=THERE)
    assert stage.titles == ["4 of 4: digits, latentbe-tdiv-sdiv of 2, seed 0"]
    assert outcome_of(out) == outcome_of(done)
    assert not any((out / "digits" / "teachers").rglob("checkpoints"))


def test_teachers_need_little_more_than_their_weights(done: Path, tmp_path: Path) -> None:
    out = finished(done, tmp_path / "runs")
    shutil.rmtree(out / "digits" / "seed-0")
    needed = {"recipe.json", "run.json", "result.json", "model.safetensors"}
    for path in sorted((out / "digits" / "teachers").glob("teacher-*/*")):
        if path.name not in needed:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    made = reproduce("tiny", out, stage=Quiet(), table=TINY, changes=THERE)
    assert not made.outcome.failures
    assert {path.name for path in (out / "digits" / "teachers").glob("teacher-*/*")} == needed
    ours, whole = outcome_of(out / "digits" / "seed-0"), outcome_of(done / "digits" / "seed-0")
    assert ours == whole
    # The report says what it could not show.
    assert made.page is not None
    assert "there are no predictions on a test split" in made.page.read_text()


def test_a_command_goes_on_from_elsewhere(
    done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(TABLES, "cifar10", TINY)
    out = finished(done, tmp_path / "runs")
    for path in list(out.rglob("checkpoints")):
        shutil.rmtree(path)
    shutil.rmtree(out / "digits" / "seed-0" / "kd-of-2")
    monkeypatch.chdir(tmp_path)
    words = ["reproduce", "cifar10", "--out", "runs", "--data.root", str(tmp_path / "elsewhere"), "--device", "cpu"]
    assert main(words) == 0
    assert "4 runs, 3 of them done" in capsys.readouterr().err
    assert outcome_of(out) == outcome_of(done)


def test_a_run_of_a_gpu_goes_on_elsewhere(tmp_path: Path) -> None:
    """There rates are float32 tensors, and are written down as such."""
    tasks = tasks_of(TINY, tmp_path, HERE)
    clock = Packing(tmp_path, 10**9)
    carry_out(tasks[:1], at_once=1, clock=clock, stage=Quiet())
    run = RunFolder(tasks[0].run)
    about = json.loads((run.path / "run.json").read_text())
    for group in about["optimizer"]["groups"]:
        assert group["lr"] == "0.05"
        group["lr"] = str(float(torch.tensor(0.05)))
        assert group["lr"] != "0.05"
    (run.path / "run.json").write_text(json.dumps(about))
    (run.path / "result.json").unlink()
    carry_out(tasks_of(TINY, tmp_path, THERE)[:1], at_once=1, clock=Clock(), stage=Quiet())
    assert run.finished
    about["optimizer"]["groups"][0]["lr"] = "0.0501"
    (run.path / "run.json").write_text(json.dumps(about))
    (run.path / "result.json").unlink()
    with pytest.raises(ValueError, match=r"different settings.*\n.*optimizer"):
        carry_out(tasks_of(TINY, tmp_path, THERE)[:1], at_once=1, clock=Clock(), stage=Quiet())


def test_a_copy_without_the_best_weights_is_told_at_once(tmp_path: Path) -> None:
    """A copy made while checkpoints were being replaced may have the new last and the old best."""
    tasks = tasks_of(TINY, tmp_path, HERE)
    carry_out(tasks[:1], at_once=1, clock=Clock(), stage=Quiet())
    run = RunFolder(tasks[0].run)
    (run.path / "result.json").unlink()
    (best,) = run.checkpoints.glob("best-*.safetensors")
    best.unlink()
    with pytest.raises(ValueError, match=rf"{best.name}.*copy the folder again, or remove"):
        carry_out(tasks[:1], at_once=1, clock=Clock(), stage=Quiet())
