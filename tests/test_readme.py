"""What the README and docs/ show runs as it stands, with fewer epochs and smaller networks."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import onefold
from onefold.cli import main
from onefold.data.preprocessing import of_name
from onefold.engine import build_network
from onefold.ensemble import Plain
from onefold.export.inputs import in_code

ROOT = Path(__file__).parent.parent
README, OWN, DEPLOY = ROOT / "README.md", ROOT / "docs" / "data-and-networks.md", ROOT / "docs" / "deploy.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md")), ROOT / "RESULTS.md"]
NET = """
from torch import nn


class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(192, 16), nn.ReLU(), nn.Linear(16, 3))
"""
SHORT = ["--epochs", "1", "--optim.warmup-epochs", "0", "--recipe.members", "2"]


def blocks(page: Path, marker: str, language: str = "") -> list[str]:
    """The code behind a comment."""
    return re.findall(rf"<!-- {marker} -->\n```{language}\n(.*?)```", page.read_text(), re.DOTALL)


def run(code: str) -> dict[str, object]:
    names: dict[str, object] = {}
    exec(compile(code, "README.md", "exec"), names)
    return names


def test_quickstart(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = blocks(README, "run by tests/test_readme.py", "python")
    assert len([line for line in code.splitlines() if line.strip()]) <= 25
    short = code.replace('"epochs": 30', '"epochs": 1')
    assert short != code
    names = run(short)
    assert "the student  accuracy" in capsys.readouterr().out
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
    (commands,) = blocks(OWN, "run by tests/test_readme.py")
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
    (commands,) = blocks(DEPLOY, "exports, run by tests/test_readme.py")
    for line in commands.splitlines():
        program, *words = shlex.split(line)
        assert program == "onefold"
        assert main(words) == 0
    assert {path.name for path in mine.glob("student*")} == {"student.pt2", "student-hub"}
    assert (mine / "runs/mine/student/export/model.safetensors").exists()
    (code,) = blocks(DEPLOY, "facts, run by tests/test_readme.py", "python")
    given = run(code)["given"]
    assert isinstance(given, dict)
    assert (given["shape"], given["preprocessing"]["divide_by"]) == ([3, 8, 8], 255)


def test_preprocessing_as_it_is_documented() -> None:
    (code,) = blocks(DEPLOY, "preprocessing, run by tests/test_readme.py", "python")
    assert code.splitlines() == in_code({"preprocessing": of_name("imagenet", 3, [224, 224])})
    names: dict[str, object] = {"images": [Image.new("L", (300, 500), 51), Image.new("RGB", (64, 32), (51, 51, 51))]}
    exec(compile(code, "deploy.md", "exec"), names)
    torch.testing.assert_close(names["x"], torch.full((2, 3, 224, 224), 0.2))


def test_a_network_of_ones_own_on_the_command_line(
    mine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (commands,) = blocks(OWN, "with a network of your own, run by tests/test_readme.py")
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


def test_a_model_of_timm(tmp_path: Path) -> None:
    pytest.importorskip("timm")
    (code,) = blocks(OWN, "a model of timm, run by tests/test_readme.py", "python")
    (tmp_path / "mynet.py").write_text(code)
    net = build_network(f"{tmp_path}/mynet.py:vit", 3, ((0.5,), (0.2,)), (32, 32))
    assert net(torch.rand(2, 1, 32, 32)).shape == (2, 3)


def test_a_network_of_ones_own(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = blocks(OWN, "run by tests/test_readme.py, too", "python")
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


def test_rates_by_layer() -> None:
    (code,) = blocks(OWN, "rates by layer, run by tests/test_readme.py", "python")
    net = torch.nn.Sequential()
    net.add_module("body", torch.nn.Linear(4, 5))
    net.add_module("head", torch.nn.Linear(5, 3))
    names: dict[str, object] = {"net": net}
    exec(compile(code, OWN.name, "exec"), names)
    by_layer: Any = names["by_layer"]
    for student in (onefold.batch_ensemble(net, 2), Plain(net)):
        groups = by_layer(student.parameter_groups(1e-3, 0.0, adaptive=True)).param_groups
        rates = {id(weight): group["lr"] for group in groups for weight in group["params"]}
        parts: Any = student.net
        assert [rates[id(weight)] for weight in (parts.body.weight, parts.body.bias)] == [1e-4] * 2
        assert {rates[id(weight)] for weight in parts.head.parameters()} == {1e-3}
        assert len(rates) == len(list(student.parameters()))
    x, y = torch.rand(30, 4), torch.arange(30) % 3
    teachers = [torch.nn.Linear(4, 3), torch.nn.Linear(4, 3)]
    onefold.distill(teachers, net, (x, y), epochs=1, optimizer=by_layer, progress=False)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())
    missing = [t for t in targets if not t.startswith("http") and not (page.parent / t).exists()]
    assert not missing
