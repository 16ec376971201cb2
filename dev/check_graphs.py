"""Looks for captured steps whose gradients are disturbed, on a GPU: one line for each network and setting.

    python dev/check_graphs.py [--only transformer] [--repeats 3] [--at-once 8]

Captures one step of LatentBE + TDiv-SDiv in bf16, replays it, and compares its gradients and updates with those of the
same step run kernel by kernel. Each line says how many differ, and the smallest cosine among those that are more than
rounding. The settings take back what protects a step, one at a time: parts that share autocast's casts, and garbage
collected in the middle of a capture. `after eager` takes a step in eager bf16 first, in the same process: what it
leaves in memory has decided before whether a fault shows. Each line is measured in a process of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import itertools
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from onefold import Teachers
from onefold.data import Arrays, CropFlip
from onefold.engine import Job, Settings, capture
from onefold.engine.capture import CapturedStep
from onefold.engine.faithful import compared, traced
from onefold.engine.training import Training, prepare
from onefold.fast import streams
from onefold.methods import METHODS, PERTURBATIONS
from onefold.models import wrn28
from onefold.recipe import OptimRecipe

CUDA = torch.device("cuda")
TESTS = Path(__file__).parents[1] / "tests" / "gpu" / "test_fast_on_cuda.py"
Transformer: Callable[[], nn.Module] = runpy.run_path(str(TESTS))["Transformer"]

# Network, teachers, their number and the batch size.
CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[], nn.Module], int, int]] = {
    "transformer": (Transformer, lambda: wrn28(1), 3, 64),
    "transformers": (Transformer, Transformer, 4, 128),
    "wrn28x1": (lambda: wrn28(1), lambda: wrn28(1), 4, 128),
    "wrn28x4": (lambda: wrn28(4, 100), lambda: wrn28(4, 100), 4, 128),
}
SETTINGS = ("as it is", "casts are shared", "garbage is collected", "both")


def job(name: str, **given: Any) -> Job:
    make, teacher, members, batch = CASES[name]
    torch.manual_seed(0)
    draws = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (5 * batch, 3, 32, 32), dtype=torch.uint8, generator=draws)
    data = Arrays(images, torch.randint(0, 10, (len(images),), generator=draws))
    optim = OptimRecipe(batch_size=batch, lr=0.02, warmup_epochs=0)
    return Job(
        method=METHODS["latentbe"],
        perturbation=PERTURBATIONS["tdiv-sdiv"],
        net=make(),
        teachers=Teachers([teacher().eval() for _ in range(members)]).to(CUDA),
        train=data,
        val=data,
        test=None,
        settings=Settings(epochs=2, optim=optim, **{"precision": "bf16"} | given),
        device=CUDA,
        augment=CropFlip(4),
        say=lambda line: print(f"    {line}"),
    )


def batch_of(training: Training) -> tuple[Tensor, Tensor]:
    training.student.train()
    return next(iter(training.train.batches(0)))


@contextlib.contextmanager
def collected() -> Iterator[None]:
    """Garbage is collected often, also during captures."""
    before = gc.get_threshold()
    gc.set_threshold(50, 2, 2)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def setting(name: str) -> contextlib.ExitStack:
    stack = contextlib.ExitStack()
    if name in ("casts are shared", "both"):
        stack.enter_context(mock.patch.object(streams, "own_casts", contextlib.nullcontext))
    if name in ("garbage is collected", "both"):
        stack.enter_context(mock.patch.object(capture, "no_collection", contextlib.nullcontext))
        stack.enter_context(collected())
    return stack


def measure(name: str, how: str, after_eager: bool) -> str:
    """How a replay's gradients compare with those of the step kernel by kernel."""
    if after_eager:
        for precision in ("float32", "bf16"):
            eager = prepare(job(name, fast=False, precision=precision))
            eager.step(*batch_of(eager))
            del eager
    with setting(how):
        training = prepare(job(name))
        x, labels = batch_of(training)
        step = training.step
        assert isinstance(step, CapturedStep)
        graph = step.capture(x, labels)
        expected = graph.expected
        assert expected is not None
        replays = []
        for _ in range(2):
            with step.taken_back(CUDA) as before:
                graph.graph.replay()
                replays.append(compared(traced(step.modules, step.optimizer, before), expected, CUDA))
    steady = [each for each in replays[-1] if each.steady]
    lost = [[each.name for each in found if not each.same] for found in replays]
    names = f": {', '.join(lost[-1][:12])}" if lost[-1] else ""
    return (
        f"{len(lost[0])} and {len(lost[1])} of {len(steady)} differ in two replays, smallest cosine "
        f"{min(each.cosine for each in steady):.4f}{names}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=list(CASES), nargs="+", default=list(CASES))
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=4, help="processes that share the GPU")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        name, how, first = args.one
        print(measure(name, how, first == "after eager"))
        return
    lines = itertools.product(args.only, SETTINGS, ("alone", "after eager"))
    with ThreadPoolExecutor(args.at_once) as pool:
        for told in pool.map(in_a_process, [line for line in lines for _ in range(args.repeats)]):
            print(told, flush=True)


def in_a_process(line: tuple[str, str, str]) -> str:
    command = [sys.executable, "-W", "ignore", __file__, "--one", *line]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    last = (done.stderr.strip().splitlines() or [f"ended with {done.returncode}"])[-1]
    return f"{', '.join(line)}: {done.stdout.strip()}{last if done.returncode else ''}"


if __name__ == "__main__":
    main()
