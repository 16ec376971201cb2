"""Memory: the estimate, and looking."""

from __future__ import annotations

import dataclasses
import json
import mmap
from pathlib import Path
from typing import Any

import pytest
import torch

from onefold.bench.memory import forget_peak, peak_bytes
from onefold.data import load
from onefold.data.statistics import Statistics
from onefold.engine import build_network
from onefold.engine.cost.memory import FRAGMENTS, memory, saved_bytes
from onefold.methods import method_named
from onefold.models import mlp
from onefold.recipes import recipe_named

RECORDS = Path(__file__).parents[2] / "benchmarks" / "records"


def test_what_a_step_keeps_is_counted_without_the_weights() -> None:
    net = mlp(6, 3, hidden=(8,))
    before = {name: value.clone() for name, value in net.state_dict().items()}
    x = torch.randn(10, 6)
    # The input of each linear layer, the second of which is what ReLU keeps.
    assert sorted(saved_bytes(net, x)) == [4 * 10 * 6, 4 * 10 * 8]
    torch.testing.assert_close(dict(net.state_dict()), before, rtol=0, atol=0)


def test_the_memory_grows_with_the_batch_and_the_members() -> None:
    source = load("digits")
    net = build_network("wrn10x1", 10, source.statistics, source.image_size)

    def needed(method: str, batch: int, **optim: Any) -> float:
        recipe = recipe_named("digits")
        recipe = dataclasses.replace(recipe, optim=dataclasses.replace(recipe.optim, batch_size=batch, **optim))
        return memory(recipe, source, net, method_named(method))

    weights = sum(tensor.nbytes for tensor in net.state_dict().values())
    nothing = 2 * needed("supervised", 32) - needed("supervised", 64)
    assert nothing == pytest.approx(FRAGMENTS * 3 * weights, rel=1e-3)
    assert needed("kd", 32) - needed("supervised", 32) == pytest.approx(FRAGMENTS * 4 * weights, rel=1e-3)
    assert needed("latentbe", 32) == pytest.approx(needed("kd", 128)), "four members of a batch each"
    assert needed("kd", 128, accumulate=4) == pytest.approx(needed("kd", 32))


@pytest.mark.parametrize("network", ["wrn28x1", "wrn28x4"])
def test_on_a_gpu_it_is_near_what_was_measured(network: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The records' peaks, which have 45,000 images of 3,072 bytes in them."""
    monkeypatch.setattr("onefold.engine.cost.memory.device_named", lambda _: torch.device("cuda"))
    monkeypatch.setattr("onefold.engine.cost.memory.precision_on", lambda *_: "bf16")
    record = json.loads((RECORDS / f"2026-11-16-h200-{network}.json").read_text())
    measured = {row["step"]: 1e9 * row["memory_gb"] - 45_000 * 3_072 for row in record["rows"]}
    statistics = Statistics((0.5,) * 3, (0.25,) * 3)
    source = dataclasses.replace(load("digits"), statistics=statistics, image_size=(32, 32))
    net = build_network(network, 10, statistics, (32, 32))
    recipe = dataclasses.replace(recipe_named("cifar10"), network=network)
    steps = {"supervised, one": "supervised", "LatentBE-4": "latentbe", "LatentBE-4 + TDiv-SDiv": "latentbe"}
    for step, method in steps.items():
        assert memory(recipe, source, net, method_named(method)) == pytest.approx(measured[step], rel=0.27), step


def test_the_peak_is_of_what_came_since() -> None:
    device = torch.device("cpu")
    size = 1 << 26
    forget_peak(device)
    before = peak_bytes(device)
    with mmap.mmap(-1, size) as fresh:  # a tensor may get memory that was free and still counted
        fresh.write(b"x" * size)
        assert peak_bytes(device) >= before + 0.9 * size
    after = peak_bytes(device)
    forget_peak(device)
    assert peak_bytes(device) <= after
