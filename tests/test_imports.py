"""Imports go down only: a module may use its own layer's folder and the layers below it."""

from __future__ import annotations

import ast
import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

import onefold
import onefold.models
from onefold.cli.requests import VERBS
from onefold.names import METHOD_NEEDS, PERTURBATION_NEEDS
from onefold.recipes import RECIPES

PACKAGE = Path(onefold.__file__).parent

# From the bottom up. Names on one line do not know each other.
LAYERS = [
    ["types", "paper", "terminal", "names", "signatures", "install", "ending"],
    ["fast"],
    ["metrics"],
    ["models", "data"],
    ["objectives", "perturb", "ensemble"],
    ["methods", "predictions"],
    ["recipe", "run"],
    ["recipes"],
    ["engine"],
    ["bench", "export", "loading"],
    ["api"],
    ["report"],
    ["demo", "reproduce"],
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


# What the engine's own files are made of: they join these, and these do not know them.
PARTS = {"cost", "distributed", "keeping", "networks", "optim"}
LEAVES = {"device", "progress", "settings"}


def test_parts_of_the_engine_do_not_know_the_loop() -> None:
    wrong = []
    for part in PARTS:
        for path in (PACKAGE / "engine" / part).glob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("onefold.engine"):
                    names = (node.module or "").split(".")[2:3] or [alias.name for alias in node.names]
                    wrong += [f"{part}/{path.name} imports {name}" for name in names if name not in PARTS | LEAVES]
    assert not wrong


HEAVY = ("torchvision", "matplotlib", "PIL", "jinja2", "tyro", "rich")
COMPILER = ("torch._dynamo", "torch._inductor", "triton")


def loaded_by(statement: str, names: tuple[str, ...]) -> set[str]:
    """Which of some packages a fresh interpreter has loaded after a statement."""
    code = f"{statement}\nimport sys\nprint('loaded', *({set(names)!r} & set(sys.modules)))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    return set(told.splitlines()[-1].split()[1:])


@pytest.mark.parametrize(
    ("statement", "names"),
    [
        ("import onefold", ("torch", *HEAVY)),
        ("from onefold import *; import onefold.demo.workers, onefold.report, onefold.models", HEAVY),
        # What compiles takes as long to load as torch, and is for a GPU or who asks for it.
        ("from onefold import *; from onefold.cli import run_train, run_measure, run_report, run_demo", COMPILER),
        ("from onefold.cli import run_plan, run_bench, run_reproduce; from onefold.engine import *", COMPILER),
    ],
)
def test_what_takes_long_to_load_is_loaded_by_who_uses_it(statement: str, names: tuple[str, ...]) -> None:
    assert loaded_by(statement, names) == set()


SLOW = ("torch", "numpy", "torchvision", "matplotlib", "PIL", "jinja2")


@pytest.mark.parametrize(
    "words",
    [
        [[], ["--help"], ["--version"]],
        [[verb, "--help"] for verb in VERBS],
        [[verb, recipe, "--help"] for verb in ("train", "distill", "plan") for recipe in RECIPES],
        [["trian"], ["train"], ["distill", "cifar10"], ["train", "cifra10"], ["evaluate"], ["reproduce", "cifar1"]],
        [[verb, "--epohcs", "3"] for verb in VERBS] + [["train", "cifar10", "--epohcs", "3"]],
        [["plan", "cifar10", "--epochs", "few"], ["train", "cifar10", "--precision", "fp16"]],
        # What makes no sense together is told as soon.
        [["train", "cifar10", "--epochs", "0"], ["train", "digits", "--distill.method", "kdd"]],
        [["distill", "digits", "--teachers", "x", "--distill.method", "kd"], ["plan", "digits", "--optim.lr", "-1"]],
    ],
    ids=["overview", "help", "recipes", "words", "flags", "values", "recipe", "pair"],
)
def test_help_and_mistakes_are_answered_without_torch(words: list[list[str]]) -> None:
    assert loaded_by(f"from onefold.cli import main\nfor words in {words}: main(words)", SLOW) == set()


def test_every_method_and_perturbation_is_known_by_its_name() -> None:
    from onefold.methods import METHODS, PERTURBATIONS

    assert list(METHODS) == list(METHOD_NEEDS)
    assert list(PERTURBATIONS) == list(PERTURBATION_NEEDS)


def test_what_is_loaded_can_be_seen() -> None:
    assert loaded_by("import rich, jinja2", HEAVY) == {"rich", "jinja2"}


def test_the_compiler_is_loaded_before_anything_is_timed() -> None:
    statement = "import torch; from onefold.bench.timing import cleared; cleared(torch.device('cpu'))"
    assert "torch._dynamo" in loaded_by(statement, COMPILER)


def test_public_names_are_there() -> None:
    for name in onefold.__all__:
        assert callable(getattr(onefold, name)) or name == "__version__"
        assert name in dir(onefold)
    from onefold import api, engine, ensemble, methods, perturb

    assert onefold.distill is api.distill
    assert onefold.collapse is ensemble.collapse
    assert onefold.Method is methods.Method
    assert onefold.Result is engine.Result
    assert onefold.InputSpace is perturb.InputSpace
    assert not hasattr(onefold, "nothing")


def test_the_version_is_that_of_the_package() -> None:
    assert onefold.__version__ == importlib.metadata.version("onefold")
    code = """
import importlib.metadata

def nowhere(name):
    raise importlib.metadata.PackageNotFoundError(name)

importlib.metadata.version = nowhere
import onefold
print(onefold.__version__)
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.strip() == "0+unknown"


def test_modules_are_found_without_an_import_of_their_own() -> None:
    code = "import onefold; print(onefold.objectives.kd.__name__)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.strip() == "kd"
    assert onefold.models.resnet50.__module__ == "onefold.models.resnet"
    assert not hasattr(onefold.models, "nothing")
