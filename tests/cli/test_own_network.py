"""`--network FILE.py:NAME`, from the teachers to the report, and what happens when the file does not stay as it was."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from onefold.cli import main
from onefold.run import RunFolder

Capture = pytest.CaptureFixture[str]
Refused = Callable[[Sequence[str]], str]
NET = """
from torch import nn


class Net(nn.Module):
    def __init__(self, classes, channels=1):
        super().__init__()
        self.conv = nn.Conv2d(channels, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.last = nn.Linear(4, classes)

    def forward(self, x):
        return self.last(self.norm(self.conv(x)).relu().mean((2, 3)))


def small(classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(192, classes))
"""
QUICK = ["--epochs", "2", "--optim.warmup-epochs", "0", "--recipe.members", "2", "--device", "cpu"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder with data, a network, and two teachers of it."""
    folder = tmp_path_factory.mktemp("user")
    draws = np.random.default_rng(0)
    x, y = draws.integers(0, 256, (120, 8, 8, 3), dtype=np.uint8), np.arange(120) % 3
    np.savez(folder / "mine.npz", train_x=x[:90], train_y=y[:90], test_x=x[90:], test_y=y[90:])
    (folder / "mynet.py").write_text(NET)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["train", *words(folder), "--network", "mynet.py:Net", "--out", "teachers"]) == 0
    return folder


@pytest.fixture
def mine(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, whose runs know the copied file."""
    folder = tmp_path / "user"
    shutil.copytree(trained, folder)
    for path in folder.glob("teachers/*/run.json"):
        path.write_text(path.read_text().replace(f"{trained}/mynet.py", f"{folder}/mynet.py"))
    monkeypatch.chdir(folder)
    return folder


def words(folder: Path) -> list[str]:
    return ["cifar10", *QUICK, "--data.source", f"npz:{folder}/mine.npz"]


def from_teachers(folder: Path, trained: Path) -> list[str]:
    """The data are where they were when the teachers were trained."""
    return ["distill", *words(trained), "--teachers", str(folder / "teachers")]


def changed(folder: Path, before: str = "", now: str = "# changed\n") -> None:
    file = folder / "mynet.py"
    assert before in file.read_text()
    file.write_text(file.read_text().replace(before, now) if before else file.read_text() + now)


def test_from_teachers_to_report(trained: Path, mine: Path, capsys: Capture) -> None:
    own = ["--network", "mynet.py:Net"]
    assert main([*from_teachers(mine, trained), *own, "--out", "student"]) == 0
    assert "network    mynet.py:Net(classes=3, channels=3), 135 parameters\n" in capsys.readouterr().err
    assert main(["evaluate", "teachers", "student", "--health", "--costs", "--subspace", "--device", "cpu"]) == 0
    assert {path.stem for path in mine.glob("student/measurements/*")} == {"health", "costs", "subspace"}
    assert main(["report", ".", "--out", "mine.html"]) == 0
    assert f"npz:{trained}/mine.npz, mynet.py:Net: 30 test examples" in " ".join(capsys.readouterr().out.split())
    assert main([*from_teachers(mine, trained), *own, "--out", "student"]) == 0
    assert "student is finished; nothing was changed" in capsys.readouterr().err
    assert main(["plan", *words(trained), *own, "--seconds", "0.1"]) == 0
    assert "mynet.py:Net(classes=3, channels=3), 135 parameters;" in capsys.readouterr().err


def test_another_working_directory(
    trained: Path, mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """Teachers of one network, a student of another in the same file, and one by name."""
    monkeypatch.chdir(tmp_path)
    for network in (f"{mine}/mynet.py:small", "user/mynet.py:small", "mlp"):
        out = str(tmp_path / network.replace("/", "-"))
        assert main([*from_teachers(mine, trained), "--network", network, "--out", out]) == 0
        assert main(["evaluate", out, f"{mine}/teachers", "--costs", "--device", "cpu"]) == 0
    again = ["train", *words(trained), "--network", "user/mynet.py:Net", "--out", f"{mine}/teachers"]
    capsys.readouterr()
    assert main(again) == 0
    assert capsys.readouterr().err.count("is finished; nothing was changed") == 2


def test_teachers_whose_file_was_renamed_get_more_beside_them(trained: Path, mine: Path, capsys: Capture) -> None:
    os.rename("mynet.py", "renamed.py")
    own = [*words(trained), "--network", "renamed.py:Net"]
    assert main(["train", *own, "--recipe.members", "3", "--out", "teachers"]) == 0
    assert capsys.readouterr().err.count("is finished; nothing was changed") == 2
    assert main(["distill", *own, "--recipe.members", "3", "--teachers", "teachers", "--out", "student"]) == 0
    capsys.readouterr()
    assert main(["report", ".", "--format", "md"]) == 0
    told = capsys.readouterr()
    assert "side by side" not in told.err
    assert (mine / "report.md").read_text().count("\n## ") == 1
    assert "ensemble of 3" in told.out


def test_a_killed_run_goes_on_from_another_working_directory(trained: Path, tmp_path: Path) -> None:
    """To the same bits; not with another file, be it by a comment."""
    shutil.copy(trained / "mynet.py", tmp_path)
    long = ["train", *words(trained), "--epochs", "200", "--members", "0", "--eval-every", "200"]
    command = [sys.executable, "-m", "onefold", *long, "--out", "killed", "--network", "mynet.py:Net"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        end = time.monotonic() + 120
        while not (tmp_path / "killed/teacher-0/checkpoints/last.safetensors").exists() and time.monotonic() < end:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    run = RunFolder(tmp_path / "killed" / "teacher-0")
    assert run.started
    assert not run.finished
    again = [*long, "--out", str(tmp_path / "killed"), "--network", f"{tmp_path}/mynet.py:Net"]
    changed(tmp_path)
    assert main(again) == 2
    shutil.copy(trained / "mynet.py", tmp_path)
    assert main(again) == 0
    assert main([*long, "--out", str(tmp_path / "whole"), "--network", f"{tmp_path}/mynet.py:Net"]) == 0
    assert run.model.read_bytes() == RunFolder(tmp_path / "whole" / "teacher-0").model.read_bytes()


def test_a_file_that_has_changed(trained: Path, mine: Path, capsys: Capture, refused: Refused) -> None:
    again = ["train", *words(trained), "--network", "mynet.py:Net", "--out", "teachers"]
    changed(mine)
    for unfinished in (False, True):
        if unfinished:
            (mine / "teachers" / "teacher-1" / "result.json").unlink()
        assert main(again) == 2
        told = capsys.readouterr().err
        assert "was started with different settings; choose another folder with --out (out= in Python)" in told
        assert told.endswith("  run.network_content: the file of the network, or one that it imports, has changed\n")
    shutil.copy(trained / "mynet.py", mine)
    assert main(again) == 0
    # What is only read goes on, if it can, and says so.
    changed(mine)
    capsys.readouterr()
    assert main(["evaluate", "teachers", "--costs", "--device", "cpu"]) == 0
    changed(mine, "Conv2d(channels, 4, 3)", "Conv2d(channels, 4, 5)")
    for command in ([*from_teachers(mine, trained), "--network", "mlp", "--out", "x"], ["evaluate", "teachers"]):
        told = refused([*command, *(["--costs"] if command[0] == "evaluate" else [])])
        assert "teacher-0/model.safetensors: expected the weights of a Net; size mismatch for conv.weight" in told
        assert f"{mine}/mynet.py, or a file that it imports, has changed since the run was started, and its " in told
        assert told.endswith("weights no longer fit: undo the change")


def test_a_file_beside_it_that_has_changed(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """What it imports is the network, too."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "beside_it.py").write_text("WIDTH = 4\n")
    (tmp_path / "mynet.py").write_text(f"from beside_it import WIDTH\n{NET}")
    command = ["train", *words(trained), "--network", "mynet.py:Net", "--out", "teachers"]
    assert main([*command, "--members", "0"]) == 0
    (tmp_path / "beside_it.py").write_text("WIDTH = 5\n")
    assert main(command) == 2
    assert capsys.readouterr().err.endswith("the file of the network, or one that it imports, has changed\n")


def test_a_changed_file_is_told_once(mine: Path, caplog: pytest.LogCaptureFixture) -> None:
    changed(mine, now="# another change\n")
    for path in mine.glob("teachers/*/measurements"):
        shutil.rmtree(path)
    assert main(["evaluate", "teachers", "--costs", "--device", "cpu"]) == 0
    said = [record.getMessage() for record in caplog.records if "has changed since" in record.getMessage()]
    assert said == [
        f"{mine}/mynet.py, or a file that it imports, has changed since the run was started; the weights still fit, "
        "but the network may now behave differently"
    ]


def test_a_file_that_is_gone(trained: Path, mine: Path, refused: Refused) -> None:
    os.rename("mynet.py", "renamed.py")
    gone = f"network: {mine}/mynet.py, which has the run's Net, no longer exists; put it back, run the command in"
    blind = [*from_teachers(mine, trained), "--network", "mlp", "--out", "x", "--data.source", "npz:no/where.npz"]
    assert refused(blind).startswith(gone)  # before data are read
    assert gone in refused(["evaluate", "teachers", "--costs", "--device", "cpu"])
    assert main(["evaluate", "teachers"]) == 0  # of predictions
    assert main(["report", "teachers"]) == 0
    again = ["train", *words(trained), "--network", "mynet.py:Net", "--out", "teachers"]
    assert refused(again) == f"network: there is no file {mine}/mynet.py; give the path of a Python file, FILE.py:NAME"


def test_a_file_that_has_moved_is_taken_from_where_it_is_given(
    trained: Path, mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """By who goes on with its run; its content is compared."""
    (tmp_path / "elsewhere").mkdir()
    os.rename("mynet.py", tmp_path / "elsewhere" / "mynet.py")
    monkeypatch.chdir(tmp_path)
    command = ["train", *words(trained), "--network", "elsewhere/mynet.py:Net", "--out", f"{mine}/teachers"]
    assert main(command) == 0
    assert capsys.readouterr().err.count("is finished; nothing was changed") == 2


def test_teachers_whose_file_has_moved_are_found_by_the_students(
    trained: Path, mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture, refused: Refused
) -> None:
    """Under another name, too, and of whatever network in it; a file that says something else is not theirs."""
    (tmp_path / "elsewhere").mkdir()
    os.rename("mynet.py", tmp_path / "elsewhere" / "renamed.py")
    monkeypatch.chdir(tmp_path / "elsewhere")
    command = [*from_teachers(mine, trained), "--network"]
    for name in ("Net", "small"):
        assert main([*command, f"renamed.py:{name}", "--out", name]) == 0
    capsys.readouterr()
    (tmp_path / "elsewhere" / "renamed.py").write_text(f"{NET}# changed\n")
    told = refused([*command, "renamed.py:Net", "--out", "new"])
    assert told.startswith(f"network: {mine}/mynet.py, which has the run's Net, no longer exists; put it back, run")
    assert told.endswith("or say with --network where the same file is now")
    (tmp_path / "elsewhere" / "renamed.py").write_text(NET)
    measured = ["evaluate", str(mine / "teachers"), "--costs", "--device", "cpu"]
    assert "no longer exists; put it back" in refused(measured)
    assert main([*measured, "--network", "renamed.py:Net"]) == 0


@pytest.mark.parametrize("verb", ["train", "plan", "distill"])
def test_mistakes_are_told_before_data_are_read(verb: str, mine: Path, refused: Refused) -> None:
    given = {"train": ["--out", "new"], "plan": [], "distill": ["--teachers", "teachers", "--out", "new"]}[verb]
    command = [verb, "cifar10", *QUICK, "--data.source", "npz:no/where.npz", *given, "--network"]
    assert refused([*command, "resnet-50"]) == "network: there is no 'resnet-50'; did you mean 'resnet50'?"
    assert refused([*command, "mynet.py:Nat"]) == f"network: {mine}/mynet.py has no 'Nat'; did you mean 'Net'?"
    changed(mine, "self.norm", "self.nrom")
    assert refused([*command, "mynet.py:Net"]).startswith("npz:no/where.npz: ")  # what it does is seen with data
    assert not (mine / "new").exists()


def test_the_wrong_number_of_classes(trained: Path, mine: Path, refused: Refused) -> None:
    changed(mine, "nn.Linear(192, classes)", "nn.Linear(192, 10)")
    told = refused(["train", *words(trained), "--network", "mynet.py:small", "--out", "new"])
    assert told.startswith("network: expected 'mynet.py:small' to return [2, 3] for inputs [2, 3, 8, 8], ")
    assert not (mine / "new").exists()


def test_bench_takes_it_too(mine: Path, refused: Refused) -> None:
    """For ten classes of CIFAR's images, like every other network there."""
    (mine / "threes.py").write_text(NET.replace("192, classes", "3072, 3"))
    told = refused(["bench", "--device", "cpu", "--network", "threes.py:small"])
    assert told.startswith("network: expected 'threes.py:small' to return [2, 10] for inputs [2, 3, 32, 32], ")
    assert main(["bench", "--device", "cpu", "--network", "threes.py:Net", "--row", "supervised", "--batch", "2"]) == 0


def test_what_a_run_records(mine: Path) -> None:
    about = json.loads((mine / "teachers/teacher-0/run.json").read_text())
    assert (about["network"], about["network_file"]) == ("mynet.py:Net", f"{mine}/mynet.py")
    assert not list(mine.glob("teachers/**/*.py"))
