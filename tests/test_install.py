from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from types import SimpleNamespace

import pytest

from onefold.install import install


@pytest.fixture
def pip(monkeypatch: pytest.MonkeyPatch) -> None:
    found = PathFinder.find_spec("shlex")
    monkeypatch.setattr("onefold.install.PathFinder", SimpleNamespace(find_spec=lambda _: found))


@pytest.fixture
def no_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onefold.install.PathFinder", SimpleNamespace(find_spec=lambda _: None))


@pytest.mark.usefixtures("no_pip")
def test_an_environment_of_uv_is_named_unless_uv_finds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here/deeper").mkdir(parents=True)
    (tmp_path / "here/.venv").mkdir()
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "here/.venv"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "here/.venv/bin/python"))
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.chdir(tmp_path / "here/deeper")
    assert install("scipy") == "uv pip install scipy"
    assert install("onnx", "onnxscript>=1") == "uv pip install onnx 'onnxscript>=1'"
    monkeypatch.chdir(tmp_path)
    assert install("scipy") == f"uv pip install --python {tmp_path}/here/.venv/bin/python scipy"
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "here/.venv"))
    assert install("scipy") == "uv pip install scipy"
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "other"))
    assert install("scipy") == f"uv pip install --python {tmp_path}/here/.venv/bin/python scipy"


@pytest.mark.usefixtures("pip")
def test_pip_is_that_of_this_python(monkeypatch: pytest.MonkeyPatch) -> None:
    name = Path(sys.executable).name
    monkeypatch.setattr(shutil, "which", lambda found: sys.executable if found == name else None)
    assert install("scipy") == f"{name} -m pip install scipy"
    monkeypatch.setattr(shutil, "which", lambda _: "/usr/bin/python3")
    assert install("scipy") == f"{sys.executable} -m pip install scipy"


def test_the_command_works_here() -> None:
    """It finds the environment that these tests run in, and something to install with."""
    words = [*install("packaging").split(), "--dry-run", "--no-deps", "--no-index"]
    if shutil.which(words[0]) is None:
        pytest.skip(f"{words[0]} is not installed")
    told = subprocess.run(words, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr


def test_looking_for_pip_moves_no_modules() -> None:
    """setuptools, asked for pip, warns and takes distutils away from whoever has imported it."""
    code = "import setuptools, sys; sys.modules['distutils'] = setuptools; from onefold.install import install\n"
    code += "install('scipy'); assert 'distutils' in sys.modules"
    told = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
