from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from onefold.cli import main
from onefold.cli.proposal import beside

Capture = pytest.CaptureFixture[str]
Refused = Callable[[Sequence[str]], str]
QUICK = ["--network", "mlp", "--epochs", "1", "--optim.warmup-epochs", "0", "--recipe.members", "2"]


def proposed(told: str) -> list[str]:
    """The words of the command that was proposed, after the program's name."""
    (line,) = [line for line in told.splitlines() if line.startswith("next: ")]
    return shlex.split(line)[2:]


@pytest.mark.parametrize(("teachers", "student"), [("teachers", "student"), ("a", "a-student")])
def test_the_student_gets_a_folder_next_to_its_teachers(
    teachers: str, student: str, tmp_path: Path, capsys: Capture
) -> None:
    assert main(["train", "digits", *QUICK, "--out", str(tmp_path / teachers)]) == 0
    assert main(proposed(capsys.readouterr().err)) == 0
    assert (tmp_path / student / "result.json").exists()


def test_the_students_of_two_folders_do_not_get_the_same_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert beside(Path("runs/a")) == Path("runs/a-student")
    assert beside(Path("runs/b")) == Path("runs/b-student")
    assert beside(Path("runs/student")) == Path("runs/student-student")
    assert beside(Path("runs/b/teachers")) == Path("runs/b/student")
    assert beside(Path()) == tmp_path / "here-student"


def test_images_that_were_normalised_get_a_student_without_perturbation(
    tmp_path: Path, capsys: Capture, refused: Refused
) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((90, 1, 8, 8)), np.arange(90) % 3
    np.savez(tmp_path / "mine.npz", train_x=x, train_y=y, test_x=x, test_y=y)
    words = ["digits", *QUICK, "--data.source", f"npz:{tmp_path / 'mine.npz'}"]
    assert main(["train", *words, "--out", str(tmp_path / "teachers")]) == 0
    told = capsys.readouterr().err
    assert (
        "cannot be perturbed, because that needs values in [0, 1], or uint8: distill needs --distill.perturbation none"
        in told
    )
    assert "the student gets no perturbation: 'tdiv-sdiv' needs uint8 images or floats in [0, 1]\n" in told
    distill = ["distill", *words, "--teachers", str(tmp_path / "teachers"), "--out", str(tmp_path / "student")]
    said = refused(distill)
    assert said.startswith("perturbation: 'tdiv-sdiv' needs images in [0, 1], and those of npz:")
    assert "; use --distill.perturbation none, or give them as uint8 or in [0, 1] and let the network" in said
    assert main(proposed(told)) == 0
    assert json.loads((tmp_path / "student/run.json").read_text())["perturbation"] == "none"
    assert main([*distill, "--distill.perturbation", "none"]) == 0
