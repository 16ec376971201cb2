"""Runs all GPU benchmarks, one after the other; called again, it continues with those that are missing.

    python benchmarks/everything.py OUT [--data-root data] [--only WORD ...] [--minutes M] [--list]

Each writes a record `OUT/DATE-DEVICE-NAME.json` with a log next to it. The tests run first, because timings of a step
that computes something wrong are worthless. Failures are reported at the end, and do not stop the others.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch

ROOT = Path(__file__).parents[1]
NETWORKS = ("wrn28x4", "wrn28x1", "resnet50", "vit-s")
PERTURBED = ("--widths", "4", "--rows", "latentbe/tdiv-sdiv", "--no-plain")
PYTEST = ("-m", "pytest", "-q", "-p", "no:benchmark")


@dataclass(frozen=True)
class Measurement:
    """A command, in which RECORD stands for the file it writes; without RECORD there is only a log."""

    name: str
    words: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)
    emptied: tuple[Path, ...] = ()


def script(name: str, *words: str) -> tuple[str, ...]:
    return (str(ROOT / "benchmarks" / f"{name}.py"), *words, "--out", "RECORD")


def measurements(out: Path, data_root: str) -> list[Measurement]:
    cache = out / "triton-cache"
    own = {"TRITON_CACHE_DIR": str(cache)}
    workers = str(max(2, (os.cpu_count() or 2) - 2))
    return [
        # pytest-benchmark, if installed, warns that benchmarks are disabled, and our tests turn warnings into errors.
        Measurement("tests", (*PYTEST, "-m", "gpu", "-n", workers, str(ROOT / "tests")), {"OMP_NUM_THREADS": "1"}),
        Measurement("start-empty", script("step", *PERTURBED), own, (cache,)),
        Measurement("start-again", script("step", *PERTURBED), own),  # with the cache of the previous one
        *(Measurement(n, ("-m", "onefold", "bench", "--network", n, "--out", "RECORD")) for n in NETWORKS),
        Measurement("seeds", script("seeds", "--data-root", data_root)),
        Measurement("inference", script("inference", "--device", "cuda")),
    ]


def device_name() -> str:
    """The GPU's model, as used in the names of records."""
    name = torch.cuda.get_device_name().lower().removeprefix("nvidia ")
    return re.sub(r"[^a-z0-9]+", "-", name).strip("-")


def done(one: Measurement, out: Path, device: str) -> Path | None:
    """The record of a measurement, from any day, or its log if it has no record; None if it is missing."""
    kind = "json" if "RECORD" in one.words else "passed"
    return next(iter(sorted(out.glob(f"????-??-??-{device}-{one.name}.{kind}"))), None)


def measure(one: Measurement, out: Path, device: str) -> bool:
    stem = f"{time.strftime('%Y-%m-%d')}-{device}-{one.name}"
    record, log, aside = out / f"{stem}.json", out / f"{stem}.log", out / f"{stem}.unfinished"
    words = [str(aside) if word == "RECORD" else word for word in one.words]
    for place in one.emptied:
        shutil.rmtree(place, ignore_errors=True)
    with log.open("w") as file:
        ended = subprocess.run(
            [sys.executable, *words], cwd=ROOT, env=os.environ | one.environment, stdout=file, stderr=subprocess.STDOUT
        )
    if ended.returncode == 0:  # otherwise the file may be incomplete
        log.rename(log.with_suffix(".passed")) if "RECORD" not in one.words else aside.rename(record)
    return ended.returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--data-root", type=Path, default=Path("data"), help="where CIFAR-10 is, for `seeds`")
    parser.add_argument("--only", nargs="+", default=[], help="those with one of these words in their names")
    parser.add_argument("--minutes", type=float, help="nothing is begun after so many")
    parser.add_argument("--list", action="store_true", help="say what is there and what is missing")
    args = parser.parse_args()
    out, device = args.out.resolve(), device_name() if torch.cuda.is_available() else "cpu"
    begin, failed = time.monotonic(), []
    if not args.list:
        if device == "cpu":
            raise SystemExit("expected a CUDA device, got none; `onefold bench` measures a CPU")
        out.mkdir(parents=True, exist_ok=True)
    for one in measurements(out, str(args.data_root.resolve())):
        if args.only and not any(word in one.name for word in args.only):
            continue
        there = done(one, out, device)
        if args.list or there is not None:
            print(f"{one.name}: {'missing' if there is None else there.name}", flush=True)
        elif args.minutes is not None and time.monotonic() - begin > 60 * args.minutes:
            print(f"{one.name}: not begun", flush=True)
        else:
            started = time.monotonic()
            passed = measure(one, out, device)
            failed += [] if passed else [one.name]
            print(f"{one.name}: {'done' if passed else 'FAILED'}, {time.monotonic() - started:.0f} s", flush=True)
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}; their logs in {args.out} say why")


if __name__ == "__main__":
    main()
