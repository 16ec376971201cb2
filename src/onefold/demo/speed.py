"""Measures milliseconds per image, and stores them with the runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from onefold.data import Arrays, Source
from onefold.data.augment import as_input
from onefold.demo.tasks import STUDENTS, TEACHERS, student_folder
from onefold.engine import build_network
from onefold.engine.keeping.checkpoint import load_network
from onefold.ensemble import Teachers
from onefold.metrics import log_mean_probabilities
from onefold.metrics.threads import one_thread
from onefold.recipe import Recipe
from onefold.report import SPEED
from onefold.run import RunFolder

BATCH, ROUNDS = 64, 41


def write_speeds(recipe: Recipe, folder: Path, source: Source) -> None:
    """Times the networks of one seed against each other and writes each time into the network's folder.

    An ensemble runs its teachers one after the other and averages their probabilities; a student takes one pass.
    """
    assert isinstance(source.test, Arrays), "the demo's data lie in memory"
    x = as_input(source.test.x[:BATCH])

    def network(run: Path) -> nn.Module:
        net = build_network(recipe.network, len(source.classes), source.statistics, source.image_size)
        load_network(run / "model.safetensors", net)
        return net.eval()

    nets = [network(folder / TEACHERS / f"teacher-{m}") for m in range(recipe.members)]
    ensemble = Teachers(nets)
    asked: dict[str, Callable[[Tensor], Tensor]] = {
        f"{TEACHERS}/teacher-0": nets[0],
        TEACHERS: lambda x: log_mean_probabilities(ensemble(x)),
    }
    names = [student_folder(method, perturbation) for method, perturbation, _ in STUDENTS]
    asked |= {name: network(folder / name) for name in names}
    with one_thread(), torch.inference_mode():
        for name, milliseconds in times(asked, x).items():
            record = {"ms_per_image": milliseconds, "batch_size": len(x), "rounds": ROUNDS, "threads": 1}
            record |= {"members": recipe.members} if name == TEACHERS else {}
            RunFolder(folder / name).write_json(SPEED, record)


def times(asked: dict[str, Callable[[Tensor], Tensor]], x: Tensor) -> dict[str, float]:
    """Milliseconds per image, from the fastest of several rounds over all networks: other load only adds to it."""
    taken: dict[str, list[float]] = {name: [] for name in asked}
    for _ in range(ROUNDS):
        for name, answer in asked.items():
            begin = time.perf_counter()
            answer(x)
            taken[name].append(time.perf_counter() - begin)
    return {name: 1000 * min(seconds) / len(x) for name, seconds in taken.items()}
