"""`benchmarks/everything.py`: goes on with what is missing, tells what failed, and asks scripts for what they know."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from onefold.cli.arguments import parse

SCRIPTS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def everything(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("everything", SCRIPTS / "everything.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "everything", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module.torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(module.torch.cuda, "get_device_name", lambda: "NVIDIA H200")
    return module


WRITES = ("-c", "import sys, pathlib; pathlib.Path(sys.argv[1]).write_text('{}')", "RECORD")
FAILS = ("-c", "raise SystemExit('no such kernel')")
SAYS = ("-c", "print('all passed')")


def called(module: ModuleType, monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    monkeypatch.setattr(sys, "argv", ["everything.py", *words])
    module.main()


def test_what_is_there_is_not_measured_again(
    everything: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of = everything.Measurement
    wanted = [of("tests", SAYS), of("first", FAILS), of("second", WRITES)]
    monkeypatch.setattr(everything, "measurements", lambda *_: wanted)
    with pytest.raises(SystemExit, match="failed: first"):
        called(everything, monkeypatch, str(tmp_path))
    assert [line.split(",")[0] for line in capsys.readouterr().out.splitlines()] == [
        "tests: done",
        "first: FAILED",
        "second: done",
    ]
    (log,) = tmp_path.glob("*-h200-first.log")
    assert "no such kernel" in log.read_text()
    (passed,) = tmp_path.glob("*-h200-tests.passed")
    assert passed.read_text() == "all passed\n"
    wanted[1] = of("first", WRITES)
    called(everything, monkeypatch, str(tmp_path))
    again = capsys.readouterr().out.splitlines()
    assert again[0] == f"tests: {passed.name}"
    assert again[1].startswith("first: done")
    assert again[2].startswith("second: 20")
    called(everything, monkeypatch, str(tmp_path), "--list", "--only", "first")
    assert re.fullmatch(r"first: \d{4}-\d\d-\d\d-h200-first.json\n", capsys.readouterr().out)


def test_nothing_is_begun_once_the_time_is_up(
    everything: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(everything, "measurements", lambda *_: [everything.Measurement("one", WRITES)])
    called(everything, monkeypatch, str(tmp_path), "--minutes", "0")
    assert capsys.readouterr().out == "one: not begun\n"
    assert not list(tmp_path.glob("*.json"))


def test_without_a_gpu_it_says_so(everything: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(everything.torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match="expected a CUDA device"):
        called(everything, monkeypatch, str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()


def test_commands_have_only_flags_that_there_are(everything: ModuleType, tmp_path: Path) -> None:
    for one in everything.measurements(tmp_path, "data"):
        if one.words[:2] == ("-m", "onefold"):
            parse(list(one.words[2:]))
        elif one.words[0] != "-m":
            known = set(re.findall(r'add_argument\(\s*"(--[a-z-]+)"', Path(one.words[0]).read_text()))
            assert {word for word in one.words if word.startswith("--")} <= known, one.name
