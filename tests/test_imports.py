"""Imports go down only: a module may use its own layer's folder and the layers below it."""

from __future__ import annotations

import ast
from pathlib import Path

import onefold

PACKAGE = Path(onefold.__file__).parent

# From the bottom up. Names on one line do not know each other.
LAYERS = [
    ["types"],
    ["fast"],
    ["metrics"],
    ["models", "data"],
    ["objectives", "perturb", "ensemble"],
    ["methods"],
    ["recipe", "run"],
    ["recipes"],
    ["engine"],
    ["api"],
    ["report"],
    ["demo"],
    ["cli"],
    ["__main__"],
]
HEIGHT = {name: height for height, names in enumerate(LAYERS) for name in names}
# The report draws from run folders alone.
FORBIDDEN = {("report", "engine"), ("report", "api"), ("report", "data"), ("report", "ensemble")}


def layer_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return parts[0]


def imported(path: Path) -> set[str]:
    """Layers of this package that a file imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            names = [f"{module}.{alias.name}" for alias in node.names] if module == "onefold" else [module]
        found |= {name.split(".")[1] for name in names if name.startswith("onefold.")}
    return found


def test_every_module_has_a_layer() -> None:
    layers = {layer_of(path) for path in PACKAGE.rglob("*.py")} - {"__init__"}
    assert layers <= HEIGHT.keys()


def test_imports_go_down() -> None:
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        layer = layer_of(path)
        if layer == "__init__":
            continue
        for other in imported(path) - {layer}:
            if HEIGHT.get(other, -1) >= HEIGHT[layer] or (layer, other) in FORBIDDEN:
                wrong += [f"{path.relative_to(PACKAGE)} imports {other}"]
    assert not wrong
