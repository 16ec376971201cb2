"""Run folders as the engine and `onefold evaluate` leave them, with random numbers in them."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from onefold.recipe import DistillRecipe, Recipe, to_dict
from onefold.recipes import cifar10
from onefold.run import RunFolder

CLASSES = 10
CORRUPTIONS = ("gaussian_noise", "fog", "jpeg_compression", "speckle_noise")
ENV = {
    "python": "3.12.1",
    "libraries": {"onefold": "0.1.0", "torch": "2.11.0", "numpy": "2.1.0"},
    "processor": "A processor",
    "cores": 2,
    "device": "cpu",
    "command": ["onefold", "train", "cifar10"],
}
Floats = npt.NDArray[np.float64]
WriteRun = Callable[..., RunFolder]


def write_run(
    folder: Path,
    recipe: Recipe,
    seed: int,
    *,
    member: int | None = None,
    strength: float = 2.5,
    measured: bool = True,
    examples: int = 400,
) -> RunFolder:
    """A finished run: a teacher with a `member`, else a student. Logits are those of a network that is too sure."""
    rng = np.random.default_rng([seed, 0 if member is None else 1 + member, int(10 * strength)])
    run = RunFolder(folder)
    kind = {"kind": "student", "method": recipe.distill.method, "perturbation": recipe.distill.perturbation}
    if member is not None:
        kind = {"kind": "teacher", "member": str(member), "method": "supervised", "perturbation": "none"}
    run.begin(to_dict(recipe), kind | {"steps": 200 * 352, "members": recipe.members}, ENV)
    for split, count in (("val", examples // 2), ("test", examples)):
        y = np.random.default_rng(count).integers(0, CLASSES, count)
        hard = np.random.default_rng(count + 1).normal(size=(count, CLASSES))  # what all networks get wrong together
        z = 1.6 * (rng.normal(size=(count, CLASSES)) + hard + strength * np.eye(CLASSES)[y])
        log_p = z - np.log(np.exp(z).sum(1, keepdims=True))
        run.write_predictions(split, y, log_p.astype(np.float32))
    for record in log_of(recipe, member is None, rng):
        run.log(record)
    run.write_json("result.json", {"seconds": 3600.0 + seed, "metrics": {}, "temperature": 1.3})
    if measured:
        write_measurements(run.path, recipe, "single" if member is not None else recipe.distill.method, rng)
    return run


def log_of(recipe: Recipe, student: bool, rng: np.random.Generator) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    for epoch in range(1, 13):
        at = {"step": 352 * epoch, "epoch": epoch}
        nll = 1.5 * math.exp(-epoch / 4) + 0.25 + float(rng.normal()) / 50
        lines.append({"kind": "train", **at, "loss": 2 * nll, "lr": 0.1, "seconds": 10.0 * epoch})
        lines.append({"kind": "val", **at, "acc": 1 - nll / 3, "nll": nll, "ece": 0.03})
        if student and recipe.distill.method in ("be", "latentbe"):
            lines.append({"kind": "diversity", **at, "train_div": 0.3 / epoch, "val_div": 0.4 / epoch})
            lines[-1]["test_div"] = 0.5 / epoch
        if student and recipe.distill.perturbation != "none":
            name = recipe.distill.perturbation
            change = {"name": name, "tdiv_change": 0.2 + epoch / 100, "sdiv_change": 0.1 + epoch / 90}
            lines.append({"kind": "perturbation", **at, **change})
    return lines


def write_measurements(folder: Path, recipe: Recipe, what: str, rng: np.random.Generator) -> None:
    """Every file of `measurements` that such a run can have; that of an ensemble is in a folder by its size."""
    place = folder / "measurements" / (f"first-{recipe.members}" if what == "ensemble" else "")
    place.mkdir(parents=True, exist_ok=True)

    def write(name: str, content: dict[str, Any]) -> None:
        (place / f"{name}.json").write_text(json.dumps({"version": 1} | content))

    rows = [
        {"corruption": name, "severity": s, "acc": 0.6 - s / 10 + float(rng.normal()) / 30, "nll": 1.1 + s / 4}
        | {"ece": 0.05 * s, "count": 400}
        for name in CORRUPTIONS
        for s in range(1, 6)
    ]
    write("corruption", {"source": "CIFAR-10-C (published)", "rows": rows})
    edges = np.linspace(0, math.log(CLASSES), 31).tolist()

    def histogram(scale: float) -> dict[str, Any]:
        drawn = np.clip(rng.gamma(2, scale, 1000), 0, math.log(CLASSES))
        return {"edges": edges, "counts": np.histogram(drawn, edges)[0].tolist()}

    scores = {"auroc": 0.9 + float(rng.random()) / 20, "aupr": 0.88, "fpr95": 0.3}
    outside = [
        {
            "name": name,
            "count": 1000,
            "entropy": histogram(0.5),
            "scores": {"entropy": scores, "max_probability": scores},
        }
        for name in ("svhn", "lsun")
    ]
    write("ood", {"inside": {"name": "cifar10 test", "count": 1000, "entropy": histogram(0.1)}, "sets": outside})
    times = {"single": 0.11, "ensemble": 0.41, "be": 0.3, "latentbe": 0.11, "kd": 0.11}
    named = {"latentbe": "collapsed", "kd": "single"}.get(what, what)
    inference = [
        {"what": named, "batch": b, "ms_per_image": times.get(what, 0.1) * f} for b, f in ((1, 9.0), (128, 1.0))
    ]
    write("costs", {"device": "a device", "train_seconds": 7200.0, "inference": inference})
    if what in ("be", "latentbe"):
        write("subspace", subspace(what, rng))
    if what == "latentbe":
        one = {"acc": 0.9, "nll": 0.3, "ece": 0.03}
        health = {"members": [one] * recipe.members, "ensemble": one, "collapsed": one | {"nll": 0.28}}
        write("health", health | {"collapsed_reestimated": one, "warning": None})


def subspace(what: str, rng: np.random.Generator) -> dict[str, Any]:
    t = np.linspace(-0.5, 1.5, 21)
    bump = 0.3 if what == "be" else -0.02
    curves = []
    for split, base in (("train", 0.05), ("test", 0.2)):
        for again in (False, True):
            error = base + float(rng.random()) / 30 + bump * np.exp(-((t - 0.5) ** 2) * 8) + 0.02 * (t - 0.5) ** 2
            curves.append({"split": split, "reestimated": again, "error": error.tolist(), "nll": (4 * error).tolist()})
    point = {"error": 0.19, "nll": 0.7}
    average = {"t": 0.5} | dict.fromkeys(("train", "test", "train_reestimated", "test_reestimated"), point)
    a = np.linspace(-0.5, 1.5, 9)
    values = [[0.2 + (x - 0.4) ** 2 + (y - 0.4) ** 2 for x in a] for y in a]
    corners: dict[str, list[float]] = {"0": [0, 0], "1": [1, 0], "2": [0.3, 0.9], "average": [0.45, 0.3]}
    plane = {"members": [0, 1, 2], "a": a.tolist(), "b": a.tolist(), "error": values, "nll": values, "points": corners}
    return {"members": [0, 1], "t": t.tolist(), "curves": curves, "average": average, "plane": plane}


STUDENTS = (("kd", "none", 2.6), ("be", "none", 2.6), ("latentbe", "none", 2.75), ("latentbe", "tdiv-sdiv", 2.9))


def paper_recipe(method: str = "latentbe", perturbation: str = "tdiv-sdiv", seed: int = 0) -> Recipe:
    distill = DistillRecipe(method, perturbation)
    return dataclasses.replace(cifar10(), seed=seed, distill=distill)


def write_everything(root: Path) -> Path:
    """Four teachers and four students with two seeds each: twelve runs of the paper's recipe, all measured."""
    for m in range(4):
        write_run(root / "teachers" / f"teacher-{m}", paper_recipe(), 0, member=m)
    write_measurements(root / "teachers", paper_recipe(), "ensemble", np.random.default_rng(0))
    for seed in range(2):
        for method, perturbation, strength in STUDENTS:
            name = method if perturbation == "none" else f"{method}-{perturbation}"
            recipe = paper_recipe(method, perturbation, seed)
            write_run(root / f"seed-{seed}" / name, recipe, 10 + seed, strength=strength)
    return root


@pytest.fixture(scope="session")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_everything(tmp_path_factory.mktemp("everything"))


@pytest.fixture
def write() -> WriteRun:
    return write_run
