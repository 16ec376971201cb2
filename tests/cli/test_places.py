"""Runs of data that are named by a path, used from another folder than the one they were begun in."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from onefold.cli import main
from onefold.data import load
from onefold.data.place import found_again, place_of
from onefold.data.trace import traces

Capture = pytest.CaptureFixture[str]
QUICK = ["--network", "mlp", "--epochs", "1", "--optim.warmup-epochs", "0", "--recipe.members", "2"]


def words(path: str, out: str) -> list[str]:
    return ["cifar10", *QUICK, "--device", "cpu", "--data.source", f"npz:{path}", "--out", out]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with data, and one of two teachers; another folder is the working directory afterwards."""
    folder = tmp_path / "project"
    folder.mkdir()
    draws = np.random.default_rng(0)
    x, y = draws.integers(0, 256, (120, 8, 8, 3), dtype=np.uint8), np.arange(120) % 3
    np.savez(folder / "mine.npz", train_x=x[:90], train_y=y[:90], test_x=x[90:], test_y=y[90:])
    monkeypatch.chdir(folder)
    assert main(["train", *words("mine.npz", "teachers"), "--members", "0"]) == 0
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return folder


def test_the_same_file_by_another_path_goes_on(project: Path, capsys: Capture) -> None:
    there = "../project/teachers"
    assert main(["train", *words("../project/mine.npz", there)]) == 0
    assert "teacher-0 is finished" in capsys.readouterr().err
    assert main(["train", *words(f"{project}/mine.npz", there)]) == 0
    assert capsys.readouterr().err.count("is finished; nothing was changed") == 2
    assert main(["report", there]) == 0
    told = capsys.readouterr().out
    assert "npz:mine.npz, mlp: 30 test examples" in told  # as the first of them named it
    assert "ensemble of 2" in told  # teachers of one file


def test_folders_that_have_moved_with_their_data_are_named_as_before(
    project: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second teacher is trained where they are now."""
    os.rename(project, "moved")
    monkeypatch.chdir("moved")
    assert main(["train", *words("mine.npz", "teachers")]) == 0
    assert main(["report", "."]) == 0
    told = capsys.readouterr().out
    assert told.count("npz:mine.npz, mlp: 30 test examples") == 1
    assert "ensemble of 2" in told


def test_another_file_is_another_recipe(project: Path, capsys: Capture) -> None:
    shutil.copy(project / "mine.npz", "mine.npz")
    for place in ("./mine.npz", f"{Path.cwd()}/mine.npz"):
        assert main(["train", *words(place, "../project/teachers")]) == 2
        assert f"data.source: 'npz:mine.npz' -> 'npz:{place}'" in capsys.readouterr().err


def relabel(file: Path) -> None:
    """The same images under other labels: what statistics do not tell."""
    held = dict(np.load(file))
    np.savez(file, **held | {name: (held[name] + 1) % 3 for name in ("train_y", "test_y")})


def test_data_that_have_changed_are_refused(project: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.chdir(project)
    relabel(project / "mine.npz")
    changed = "train and val and test of npz:mine.npz are not what teachers/teacher-0 was trained with: the examples"
    for chosen in ([], ["--members", "1"]):
        assert main(["train", *words("mine.npz", "teachers"), *chosen]) == 2
        assert changed in capsys.readouterr().err
    assert not (project / "teachers" / "teacher-1").exists()
    student = [*words("mine.npz", "student"), "--recipe.members", "1", "--distill.perturbation", "none"]
    for seed in ("0", "1"):
        assert main(["distill", *student, "--distill.method", "kd", "--teachers", "teachers", "--seed", seed]) == 2
        assert changed in capsys.readouterr().err
    (project / "teachers" / "teacher-0" / "result.json").unlink()  # as if it had been stopped before its end
    assert main(["train", *words("mine.npz", "teachers"), "--members", "0"]) == 2
    assert changed in capsys.readouterr().err


def test_a_student_whose_data_have_changed_does_not_go_on(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    student = [*words("mine.npz", "student"), "--distill.method", "supervised", "--distill.perturbation", "none"]
    assert main(["distill", *student, "--teachers", "teachers"]) == 0
    (project / "student" / "result.json").unlink()
    relabel(project / "mine.npz")
    assert main(["distill", *student, "--teachers", "teachers"]) == 2


def test_labels_of_images_that_are_not_in_memory_are_known_again(tmp_path: Path) -> None:
    place = tmp_path / "pictures" / "train"
    for name, side in (("a", 8), ("b", 9)):  # of several sizes, so that they are read one by one
        (place / name).mkdir(parents=True)
        for k in range(12):
            Image.new("RGB", (side, side), (10 * k, 0, 0)).save(place / name / f"{name}{k}.png")
    before = traces(load(f"folder:{place.parent}"))
    assert all(":" in trace for trace in before.values())
    os.rename(place.parent, tmp_path / "moved")
    assert traces(load(f"folder:{tmp_path / 'moved'}")) == before
    os.rename(tmp_path / "moved" / "train" / "b" / "b0.png", tmp_path / "moved" / "train" / "a" / "b0.png")
    assert traces(load(f"folder:{tmp_path / 'moved'}")) != before


def test_what_asks_networks_again_finds_the_data(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["train", *words("../project/mine.npz", "../project/teachers")]) == 0
    distill = [*words("../project/mine.npz", "student"), "--distill.method", "latentbe", "--recipe.members", "2"]
    assert main(["distill", *distill, "--distill.perturbation", "none", "--teachers", "../project/teachers"]) == 0
    monkeypatch.chdir(project.parent)  # where there is neither mine.npz nor ../project/mine.npz
    assert main(["evaluate", "elsewhere/student", "--health"]) == 0
    shutil.rmtree("elsewhere/student/measurements")
    (project / "mine.npz").rename(project / "yours.npz")
    assert main(["evaluate", "elsewhere/student", "--health"]) == 2


@pytest.mark.parametrize("kind", ["npz", "folder"])
def test_a_source_is_found_again(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    place = place_of(f"{kind}:data")
    assert place == str(tmp_path / "data")
    assert found_again(f"{kind}:data", "/no/where") == f"{kind}:data"
    assert found_again(f"{kind}:data", str(tmp_path)) == f"{kind}:data"  # by its name first
    assert found_again(f"{kind}:other", place) == f"{kind}:{place}"
    assert found_again(f"{kind}:other", f"{place}/gone") == f"{kind}:other"  # is refused by the name that was given
    assert found_again(f"{kind}:other", None) == f"{kind}:other"
    assert (place_of("cifar10"), found_again("cifar10", place), place_of("hf:a/b")) == (None, "cifar10", None)
