"""The command that installs a package for this Python. Environments made by uv have no pip; where `pip` is a command
there, it belongs to another Python."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from importlib.machinery import PathFinder
from pathlib import Path


def install(*packages: str) -> str:
    """A command that installs packages for the Python that runs this."""
    python = sys.executable
    if PathFinder.find_spec("pip") is None:  # importlib.util would also ask setuptools, which warns and hides distutils
        words = ["uv", "pip", "install", *(() if found_by_uv() else ("--python", python))]
    else:
        name = Path(python).name
        words = [name if shutil.which(name) == python else python, "-m", "pip", "install"]
    return shlex.join([*words, *packages])


def found_by_uv() -> bool:
    """Whether uv would find this environment by itself: it is active, or a .venv here or in the nearest parent."""
    active = os.environ.get("VIRTUAL_ENV")
    here = Path.cwd()
    near = next((place / ".venv" for place in (here, *here.parents) if (place / ".venv").is_dir()), None)
    found = Path(active) if active else near
    return found is not None and found.is_dir() and found.resolve() == Path(sys.prefix).resolve()
