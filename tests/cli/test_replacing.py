"""Commands do not replace what they did not write."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from onefold.cli import main

Refused = Callable[[Sequence[str]], str]


@pytest.fixture
def project(teachers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with teachers and with files of the user's own."""
    shutil.copytree(teachers, tmp_path / "teachers")
    shutil.copytree(teachers / "teacher-0", tmp_path / "run")
    np.savez(tmp_path / "mine.npz", x=np.zeros(3))
    for name in ("code.py", "page.html", "notes.md", "my.json"):
        (tmp_path / name).write_text("mine")
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo" / "config.json").write_text('{"mine": 1}')
    monkeypatch.chdir(tmp_path)
    return tmp_path


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.name != ".lock"}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("export run --format safetensors --out mine.npz", "name it mine.safetensors"),
        ("export run --format safetensors --out run/model.safetensors", "is in the run folder"),
        ("export run --format hub --out run", "is a run folder"),
        ("export run --format hub --out teachers", "holds runs"),
        ("export run --format hub --out repo", "repo already has config.json"),
        ("report run --out run/result.json", "is in the run folder"),
        ("report run --out code.py", "name it code.html"),
        ("report run --out page.html", "was not written by onefold as an HTML page"),
        ("report run --format md --out notes.md", "was not written by onefold as Markdown"),
        ("report run --format md --out rep.html", "name it rep.md"),
        ("report run --figures run", "figures: run is a run folder"),
        ("plan digits --out mine.npz", "name it mine.json"),
        ("plan digits --out my.json", "was not written by onefold as a JSON record"),
        ("bench --out code.py", "name it code.json"),
        ("demo --out run", "is a run folder"),
    ],
)
def test_files_of_others_stay(project: Path, words: str, told: str, refused: Refused) -> None:
    before = content(project)
    assert told in refused(words.split())
    assert content(project) == before


@pytest.mark.parametrize(
    "words",
    [
        "export run --format safetensors --out a.safetensors",
        "export run --format onnx --out a.onnx",
        "export run --format torch-export --out a.pt2",
        "export run --format hub --out a",
        "export teachers --format torch-export",
        "report run --out a.html",
        "report run --format md --out a.md",
        "report run --format csv --out a.csv",
        "report run --format latex --out a",
    ],
)
def test_a_command_replaces_what_it_wrote_before(project: Path, words: str) -> None:
    before = content(project)
    for _ in range(2):
        assert main(words.split()) == 0
    after = content(project)
    assert len(after) > len(before)
    assert before.items() <= after.items()


def test_code_of_others_in_a_hub_folder_stays(
    project: Path, refused: Refused, capsys: pytest.CaptureFixture[str]
) -> None:
    net = (
        "from torch import nn\n\n\ndef net(classes):\n    return nn.Sequential(nn.Flatten(), nn.LazyLinear(classes))\n"
    )
    (project / "nets").mkdir()
    (project / "nets" / "hub_net.py").write_text(net)
    words = ["--network", "nets/hub_net.py:net", "--epochs", "1", "--optim.warmup-epochs", "0", "--members", "0"]
    assert main(["train", "digits", *words, "--out", "own"]) == 0
    capsys.readouterr()
    (project / "other").mkdir()
    (project / "other" / "hub_net.py").write_text("mine")
    assert "other already has hub_net.py" in refused(["export", "own/teacher-0", "--format", "hub", "--out", "other"])
    assert content(project / "other") == {"hub_net.py": b"mine"}
    assert main(["export", "own/teacher-0", "--format", "hub", "--out", "nets"]) == 0  # its own place
    assert (project / "nets" / "hub_net.py").read_text() == net
