"""What the README shows runs as it stands, with fewer epochs and smaller networks."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from onefold.cli import main

README = Path(__file__).parent.parent / "README.md"
NET = """
from torch import nn


class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(192, 16), nn.ReLU(), nn.Linear(16, 3))
"""
SHORT = ["--epochs", "1", "--optim.warmup-epochs", "0", "--recipe.members", "2"]


def blocks(marker: str, language: str = "") -> list[str]:
    """The code behind a comment."""
    return re.findall(rf"<!-- {marker} -->\n```{language}\n(.*?)```", README.read_text(), re.DOTALL)


def run(code: str) -> dict[str, object]:
    names: dict[str, object] = {}
    exec(compile(code, "README.md", "exec"), names)
    return names


def test_quickstart(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = blocks("run by tests/test_readme.py", "python")
    assert len([line for line in code.splitlines() if line.strip()]) <= 25
    short = code.replace("epochs=10", "epochs=1").replace('"epochs": 10', '"epochs": 1')
    assert short != code
    names = run(short)
    assert "'nll'" in capsys.readouterr().out
    assert type(names["served"]).__name__ == "WideResNet"


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A new user's folder: images in an .npz file, and a network in a Python file."""
    draws = np.random.default_rng(0)
    x, y = draws.integers(0, 256, (90, 8, 8, 3), dtype=np.uint8), np.arange(90) % 3
    np.savez(tmp_path / "mine.npz", train_x=x[:60], train_y=y[:60], test_x=x[60:], test_y=y[60:])
    (tmp_path / "mynet.py").write_text(NET)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_own_data_on_the_command_line(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (commands,) = blocks("run by tests/test_readme.py, too")
    lines = commands.splitlines()
    assert [line.split()[1] for line in lines] == ["train", "distill", "evaluate", "report"]
    for line in lines:
        program, *words = shlex.split(line.replace("wrn16x2", "mlp"))
        assert program == "onefold"
        assert main([*words, *(SHORT if words[0] in ("train", "distill") else [])]) == 0
    told = capsys.readouterr()
    assert "LatentBE + TDiv-SDiv" in told.out
    assert "ensemble of 2" in told.out
    assert (mine / "mine.html").stat().st_size > 10_000


def test_a_network_of_ones_own_on_the_command_line(
    mine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (commands,) = blocks("with a network of your own, run by tests/test_readme.py")
    lines = commands.splitlines()
    assert [line.split()[1] for line in lines] == ["train", "distill", "evaluate"]
    for line in lines:
        program, *words = shlex.split(line)
        assert program == "onefold"
        assert main([*words, *(SHORT if words[0] in ("train", "distill") else [])]) == 0
    assert "mynet.py:Net(), 3,139 parameters" in capsys.readouterr().err
    assert (mine / "runs/net/student/measurements/health.json").exists()
    monkeypatch.chdir("/")
    assert main(["evaluate", str(mine / "runs/net/teachers"), "--costs"]) == 0


def test_a_network_of_ones_own(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = blocks("run by tests/test_readme.py, too", "python")
    short = code.replace('"epochs": 200', '"epochs": 1').replace("range(4)", "range(2)")
    assert short.count('"epochs": 1}') == short.count("range(2)") == 1
    first, again = run(short), run(short)
    for names in (first, again):
        assert type(names["net"]).__name__ == type(names["result"].model).__name__ == "Net"  # type: ignore[attr-defined]
    assert first["result"].metrics == again["result"].metrics  # type: ignore[attr-defined]
    assert main(["evaluate", "runs/own", "runs/own/student"]) == 0
    assert main(["report", "runs/own", "--out", "own.html"]) == 0
    assert "ensemble of 2" in capsys.readouterr().out
    assert (mine / "own.html").exists()
