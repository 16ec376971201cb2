"""Measures how long a training step takes on this GPU, compared with the plain version of the same step (`pytest -m gpu
tests/bench/test_plain.py` checks that both have the same losses).

python benchmarks/step.py [--widths 1 4] [--steps 40] [--out FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from onefold.bench import plain
from onefold.data import Arrays, CropFlip
from onefold.engine.keeping.environment import environment, now
from onefold.engine.settings import Settings
from onefold.engine.training import Job, Training, prepare
from onefold.ensemble import Teachers
from onefold.methods import METHODS, PERTURBATIONS
from onefold.models import wrn28

CUDA = torch.device("cuda")
MEMBERS, BATCH = 4, 128


def images(count: int = 45_000) -> Arrays:
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (count, 3, 32, 32), dtype=torch.uint8, generator=generator)
    return Arrays(x, torch.randint(0, 10, (count,), generator=generator))


def training(
    data: Arrays, width: int, method: str, perturbation: str, precision: str = "bf16", fast: bool = True
) -> Training:
    torch.manual_seed(width)
    teachers = [wrn28(width) for _ in range(MEMBERS)]
    net = wrn28(width)
    job = Job(
        method=METHODS[method],
        perturbation=PERTURBATIONS[perturbation],
        net=net,
        teachers=None if method == "supervised" else Teachers(teachers).to(CUDA),
        train=data,
        val=None,
        test=None,
        settings=Settings(epochs=200, precision=precision, fast=fast),
        device=CUDA,
        augment=CropFlip(4),
    )
    return prepare(job)


def steps_of(t: Training) -> Iterator[Callable[[], Tensor]]:
    """Whole steps, from drawing a batch to the optimizer's update."""
    t.student.train()
    number = 0
    while True:
        for x, y in t.train.batches(number // len(t.train)):
            if x.shape[0] == BATCH:
                t.schedule.before(2000 + number)
                yield lambda x=x, y=y: t.step(x, y)  # type: ignore[misc]
                number += 1


def plain_step(data: Arrays, width: int, method: str, perturbation: str) -> Callable[[], Tensor]:
    torch.manual_seed(width)
    teachers: list[nn.Module] = [wrn28(width).to(CUDA).eval().requires_grad_(False) for _ in range(MEMBERS)]
    net = wrn28(width).to(CUDA).train()
    x, y = data.x.to(CUDA), data.y.to(CUDA)
    if method == "supervised":
        step = plain.supervised_step(net, plain.optimizer_for(net, 1, 0.1, 5e-4))
    else:
        student = plain.batch_ensemble(net, MEMBERS).to(CUDA).train()
        optimizer = plain.optimizer_for(student, MEMBERS, 0.1, 5e-4)
        step = plain.latentbe_step(student, teachers, optimizer, 5e-4, 4.0, perturbation != "none")

    def whole() -> Tensor:
        chosen = torch.randint(len(y), (BATCH,), device=CUDA)
        return step(plain.augment(x[chosen]), y[chosen])

    return whole


def following(steps: Iterator[Callable[[], Tensor]]) -> Callable[[], Tensor]:
    return lambda: next(steps)()


def milliseconds(next_step: Callable[[], object], count: int, warm: int = 5, blocks: int = 5) -> float:
    """Milliseconds per step: the median over blocks of steps, with events around each block."""
    for _ in range(warm):
        next_step()
    torch.cuda.synchronize()
    times = []
    for _ in range(blocks):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(count):
            next_step()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / count)
    return float(statistics.median(times))


ROWS = (("supervised", "none"), ("latentbe", "none"), ("latentbe", "tdiv-sdiv"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--widths", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rows", nargs="+", default=[f"{m}/{p}" for m, p in ROWS], help="such as latentbe/tdiv-sdiv")
    parser.add_argument("--no-plain", action="store_true")
    parser.add_argument("--profile", type=Path)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    data = images()
    table = []
    for width in args.widths:
        for method, perturbation in (row.split("/") for row in args.rows):
            begin = time.monotonic()
            torch.cuda.reset_peak_memory_stats()
            t = training(data, width, method, perturbation)
            steps = steps_of(t)
            first = next(steps)()
            torch.cuda.synchronize()
            start_up = time.monotonic() - begin
            ours = milliseconds(following(steps), args.steps)
            memory = torch.cuda.max_memory_allocated() / 1e9
            graph = getattr(t.step, "graphs", {})
            alone = milliseconds(next(iter(graph.values())).graph.replay, args.steps) if graph else float("nan")
            if args.profile:
                profile(following(steps), args.profile / f"wrn28x{width}-{method}-{perturbation}.txt")
            theirs = float("nan")
            if not args.no_plain:
                step = plain_step(data, width, method, perturbation)
                theirs = milliseconds(step, 10, warm=3, blocks=3)
            row = {"network": f"wrn28x{width}", "method": method, "perturbation": perturbation, "ms": ours}
            row |= {"optimizer": type(t.optimizer).__name__}
            row |= {
                "graph_ms": alone if graph else None,
                "plain_ms": None if args.no_plain else theirs,
                "start_up_s": start_up,
                "memory_gb": memory,
                "loss": float(first),
            }
            table.append(row)
            print(
                f"wrn28x{width} {method} {perturbation}: {ours:.3f} ms (graph alone {alone:.3f}), plain {theirs:.1f}, "
                f"{theirs / ours:.1f}x, start-up {start_up:.1f} s, {memory:.2f} GB",
                flush=True,
            )
            del t, steps
            torch.cuda.empty_cache()
    if args.out:
        record = {"date": now(), "environment": environment(CUDA), "rows": table}
        args.out.write_text(json.dumps(record, indent=1, allow_nan=False) + "\n")


def profile(step: Callable[[], object], path: Path) -> None:
    """Writes the kernels of ten steps, sorted by time."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as record

    with record(activities=[ProfilerActivity.CUDA]) as recorded:
        for _ in range(10):
            step()
        torch.cuda.synchronize()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(recorded.key_averages().table(sort_by="cuda_time_total", row_limit=60, max_name_column_width=90))


if __name__ == "__main__":
    main()
