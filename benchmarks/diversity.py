"""Measures the cost of logging the members' diversity, as a share of training on CIFAR-10; it should be under 2%.

    python benchmarks/diversity.py [--network wrn28x1] [--steps 40]

Alternates between steps of LatentBE + TDiv-SDiv with M = 4 and measurements of diversity, which are made at the default
interval. Uses 45,000 / 5,000 random images of CIFAR's size, which are as slow as real ones.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable

import torch

from onefold import Teachers
from onefold.data import Arrays
from onefold.engine import Job, build_network
from onefold.engine.device import device_named, own_randomness, placed
from onefold.engine.keeping.environment import environment
from onefold.engine.settings import settings_of
from onefold.engine.training import prepare
from onefold.methods import method_named, perturbation_named
from onefold.models import CIFAR10
from onefold.recipes import recipe_named


def images(count: int, seed: int) -> Arrays:
    draws = torch.Generator().manual_seed(seed)
    x = torch.randint(256, (count, 3, 32, 32), dtype=torch.uint8, generator=draws)
    return Arrays(x, torch.randint(10, (count,), generator=draws))


def seconds(run: Callable[[], object], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    begin = time.perf_counter()
    run()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", default="wrn28x1")
    parser.add_argument("--steps", type=int, default=40, help="timed, in blocks around the looks")
    parser.add_argument("--looks", type=int, default=4)
    parser.add_argument("--precision", default="float32", choices=["float32", "bf16"])
    args = parser.parse_args()
    device = device_named("auto")
    settings = settings_of(recipe_named("cifar10"), 0)
    settings = type(settings)(epochs=settings.epochs, optim=settings.optim, precision=args.precision)
    torch.manual_seed(0)
    nets = [build_network(args.network, 10, (CIFAR10.mean, CIFAR10.std), (32, 32)) for _ in range(5)]
    job = Job(
        method=method_named("latentbe"),
        perturbation=perturbation_named("tdiv-sdiv"),
        net=nets[0],
        teachers=Teachers(nets[1:]),
        train=images(45_000, 0),
        val=images(5_000, 1),
        test=None,
        settings=settings,
        device=device,
    )
    with own_randomness(device), placed(job.teachers, device):
        training = prepare(job)
        log = training.diversity
        assert log is not None
        training.student.train()
        epochs = itertools.chain.from_iterable(training.batches(epoch, 0) for epoch in itertools.count())

        def step() -> None:
            training.step(*next(epochs))

        def some(count: int) -> None:
            for _ in range(count):
                step()

        some(12 if device.type == "cuda" else 2)
        log.records(0, 1)  # reads the images, which happens only once per run
        steps: list[float] = []
        looks: list[float] = []
        block = max(1, args.steps // args.looks)
        for place in range(args.looks):
            steps += [seconds(lambda: some(block), device) / block]
            looks += [seconds(lambda place=place: log.records(place, 1), device)]  # type: ignore[misc]
    a_step, a_look = statistics.median(steps), statistics.median(looks)
    epoch = a_step * len(training.train)
    found = environment(device)
    result = {
        "device": found.get("gpu", f"{found['processor']}, {found['threads']} threads"),
        "torch": found["libraries"]["torch"],
        "network": args.network,
        "images of each split": log.count,
        "epochs between looks": log.every,
        "a step, ms": 1000 * a_step,
        "a look, ms": 1000 * a_look,
        "share of the training": a_look / log.every / epoch,
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
