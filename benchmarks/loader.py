"""Measures how much the loader adds to a training step of WRN28x1 on a CPU: python benchmarks/loader.py

Uses CIFAR's sizes and the paper's batch size, crops and flips. Prints the median times of a step on an existing batch
and of making a batch, and their ratio, which should be at most 5%.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from onefold.data import Arrays, CropFlip, DeviceLoader
from onefold.models import wrn28

MOST = 0.05


def cifar_like(count: int) -> Arrays:
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (count, 3, 32, 32), dtype=torch.uint8, generator=generator)
    return Arrays(x, torch.randint(0, 10, (count,), generator=generator))


def training_step() -> Callable[[Tensor, Tensor], None]:
    """The paper's teacher: cross-entropy, SGD with Nesterov momentum."""
    torch.manual_seed(0)
    network = wrn28(1).train()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)

    def step(x: Tensor, y: Tensor) -> None:
        optimizer.zero_grad()
        F.cross_entropy(network(x), y).backward()
        optimizer.step()

    return step


def seconds(action: Callable[[], object], times: int, warm_up: int = 3) -> list[float]:
    for _ in range(warm_up):
        action()
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        action()
        taken.append(time.perf_counter() - start)
    return taken


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=20, help="training steps that are timed")
    parser.add_argument("--examples", type=int, default=45_000)
    arguments = parser.parse_args()

    loader = DeviceLoader(
        cifar_like(arguments.examples), arguments.batch, augment=CropFlip(), shuffle=True, drop_last=True
    )
    step = training_step()
    x, y = next(loader.batches())
    steps = seconds(lambda: step(x, y), arguments.steps)
    # An epoch's order and augmentation are drawn with its first batch: time that separately and spread the cost.
    firsts = seconds(lambda: next(loader.batches()), 10)
    batches = loader.batches()
    loads = seconds(lambda: next(batches), min(100, len(loader) - 3))
    work, first, later = (statistics.median(taken) for taken in (steps, firsts, loads))
    load = later + max(first - later, 0) / len(loader)
    ratio = load / work
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, batch {arguments.batch}")
    spread = f"median of {len(steps)}, {1e3 * min(steps):.1f} to {1e3 * max(steps):.1f}"
    print(f"step of WRN28x1   {1e3 * work:8.1f} ms ({spread})")
    print(f"batch of loader   {1e3 * load:8.2f} ms (median of {len(loads)} {1e3 * later:.2f}, first {1e3 * first:.2f})")
    print(f"loader / step     {ratio:8.2%} ({'at most' if ratio <= MOST else 'MORE THAN'} {MOST:.0%})")
    return 0 if ratio <= MOST else 1


if __name__ == "__main__":
    raise SystemExit(main())
