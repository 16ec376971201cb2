"""The scripts of dev/, and folders of runs to use them on."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

DEV = Path(__file__).parent.parent.parent / "dev"
Script = Callable[[str], ModuleType]


@pytest.fixture(scope="session")
def script() -> Script:
    def loaded(name: str) -> ModuleType:
        if (there := sys.modules.get(f"dev_{name}")) is not None:
            return there
        spec = importlib.util.spec_from_file_location(f"dev_{name}", DEV / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[f"dev_{name}"] = importlib.util.module_from_spec(spec)  # dataclasses look there
        spec.loader.exec_module(module)
        return module

    return loaded
