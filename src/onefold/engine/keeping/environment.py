"""The environment a run happened in, as recorded in env.json."""

from __future__ import annotations

import datetime
import functools
import importlib.metadata
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

LIBRARIES = ("onefold", "torchvision", "timm", "triton", "numpy", "safetensors")


def environment(device: torch.device) -> dict[str, Any]:
    """Versions, hardware, and the package's commit if it is run from its repository."""
    found: dict[str, Any] = {
        "python": platform.python_version(),
        # torch.__version__ also names the build, such as +cu126
        "libraries": {name: version(name) for name in LIBRARIES} | {"torch": str(torch.__version__)},
        "platform": platform.platform(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": str(device),
        "commit": commit(Path(__file__).parent),
        "command": sys.argv,
    }
    if device.type == "cuda":
        found |= {"gpu": torch.cuda.get_device_name(device), "cuda": torch.version.cuda}
        found |= {"cudnn": torch.backends.cudnn.version()}
    return found


def now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def version(library: str) -> str | None:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return None


def processor() -> str:
    """The processor's name, or only its architecture if the system does not tell the name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


@functools.cache  # so that a process that trains many networks calls git only once
def commit(folder: Path) -> str | None:
    """The commit a folder is at, with a + if tracked files have changed; None if git does not track the folder."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(folder), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", ".")  # an installed package may be inside an unrelated repository
        changed = git("status", "--porcelain", "--untracked-files=no")
        return git("rev-parse", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return None
