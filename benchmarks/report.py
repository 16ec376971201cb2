"""Measures the time of a report on many runs, and the memory of a report on a million predictions.

    python benchmarks/report.py                 40 runs of CIFAR-10's size, with logs of 200 epochs and all measurements
    python benchmarks/report.py --bare          the same without measurements, like runs that have just ended
    python benchmarks/report.py --memory        10,000 to 1,000,000 predictions of 1,000 classes; needs 4 GB of disk

Times are for the whole command in a fresh process, including imports, after a first run that compiles modules to
bytecode. Processor time is what it would take on an idle machine. Memory is the peak resident size of the process.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import numpy as np

from onefold.data.corrupt import CORRUPTIONS, EXTRA
from onefold.recipe import DistillRecipe, Recipe, to_dict
from onefold.recipes import cifar10
from onefold.run import RunFolder

ROWS = [("kd", "none"), ("aekd", "none"), ("proxy-end2", "none"), ("be", "none"), ("be", "tdiv-sdiv")]
ROWS += [("latentbe", name) for name in ("none", "confods", "tdiv", "tdiv-sdiv")]


def write_runs(root: Path, runs: int, examples: int, classes: int, bare: bool = False) -> None:
    """Writes four teachers, and students of nine methods with as many seeds as needed."""
    if not bare:
        write_measurements(root / "teachers" / "measurements" / "first-4", "ensemble")
    for number in range(runs):
        method, perturbation = ROWS[(number - 4) % len(ROWS)]
        seed = (number - 4) // len(ROWS)
        recipe = cifar10()
        about: dict[str, object] = {"kind": "teacher", "member": number}
        path = root / "teachers" / f"teacher-{number}"
        if number >= 4:
            recipe = replaced(recipe, method, perturbation, seed)
            about = {"kind": "student", "method": method, "perturbation": perturbation}
            path = root / f"seed-{seed}" / f"{method}-{perturbation}"
        run = RunFolder(path)
        run.begin(to_dict(recipe), about, {"device": "none"})
        for split, count in (("val", examples // 2), ("test", examples)):
            run.write_predictions(split, *drawn(number, count, classes))
        lines = [
            json.dumps({"kind": "train", "step": s, "epoch": 1 + s // 352, "loss": 1 / s}) for s in range(50, 70400, 50)
        ]
        lines += [
            json.dumps({"kind": "val", "step": 352 * e, "epoch": e, "acc": 0.9, "nll": 1 / e}) for e in range(1, 201)
        ]
        members = number >= 4 and method in ("be", "latentbe")
        for e in range(2, 201, 2) if members else ():
            at = {"step": 352 * e, "epoch": e}
            lines.append(json.dumps({"kind": "diversity", **at, "train_div": 1 / e, "test_div": 2 / e}))
            lines.append(json.dumps({"kind": "perturbation", **at, "tdiv_change": 1 / e, "sdiv_change": 2 / e}))
        (run.path / "metrics.jsonl").write_text("\n".join(lines) + "\n")
        if not bare:
            write_measurements(run.path / "measurements", method if number >= 4 else "single")
        run.write_json("result.json", {"seconds": 100.0, "metrics": {}, "temperature": 1.0})


def write_measurements(folder: Path, what: str) -> None:
    """Writes all files that `onefold evaluate --all` would, with realistic sizes."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(len(what))

    def write(name: str, content: dict[str, object]) -> None:
        (folder / f"{name}.json").write_text(json.dumps({"version": 1} | content))

    def some(*shape: int) -> object:
        return (0.1 + rng.random(shape)).tolist()

    names, metrics = (*CORRUPTIONS, *EXTRA), {"acc": 0.6, "nll": 1.3, "ece": 0.1}
    rows = [{"corruption": name, "severity": s} | metrics for name in names for s in range(1, 6)]
    write("corruption", {"source": "generated, seed 0", "rows": rows})
    entropy = {"edges": np.linspace(0, 2.3, 51).tolist(), "counts": some(50)}
    scores = {key: {"auroc": 0.9, "aupr": 0.9, "fpr95": 0.3} for key in ("entropy", "max_probability")}
    sets = [{"name": name, "entropy": entropy, "scores": scores} for name in ("svhn", "tiny-imagenet", "lsun")]
    write("ood", {"inside": {"name": "cifar10 test", "entropy": entropy}, "sets": sets})
    named = {"latentbe": "collapsed", "be": "be", "ensemble": "ensemble"}.get(what, "single")
    times = [{"what": named, "batch": batch, "ms_per_image": 0.1} for batch in (1, 128)]
    write("costs", {"device": "a device", "train_seconds": 100.0, "inference": times})
    if what not in ("be", "latentbe"):
        return
    splits = [(split, again) for split in ("train", "test") for again in (False, True)]
    curves = [{"split": s, "reestimated": a, "error": some(21), "nll": some(21)} for s, a in splits]
    average: dict[str, object] = {"t": None, "test": {"error": 0.1, "nll": 0.3}, "train": {"error": 0.1, "nll": 0.3}}
    grid = np.linspace(-0.5, 1.5, 11).tolist()
    corners = {"0": [0, 0], "1": [1, 0], "2": [0, 1], "average": [1 / 3, 1 / 3]}
    plane = {"a": grid, "b": grid, "error": some(11, 11), "nll": some(11, 11), "points": corners}
    line = {"members": [0, 1], "t": np.linspace(-0.5, 1.5, 21).tolist(), "curves": curves}
    write("subspace", line | {"average": average, "plane": plane})
    health = {"members": [metrics] * 4, "ensemble": metrics, "collapsed": metrics, "collapsed_reestimated": metrics}
    write("health", health | {"warning": None, "split": "test"})


def replaced(recipe: Recipe, method: str, perturbation: str, seed: int) -> Recipe:
    import dataclasses

    return dataclasses.replace(recipe, seed=seed, distill=DistillRecipe(method, perturbation))


def drawn(seed: int, count: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = np.random.default_rng(count).integers(0, classes, count)
    logits = rng.normal(size=(count, classes)).astype(np.float32)
    logits[np.arange(count), labels] += 3
    return labels, logits - np.log(np.exp(logits).sum(1, keepdims=True))


def write_large(root: Path, examples: int, classes: int) -> None:
    """Writes one run, with its predictions piece by piece."""
    run = RunFolder(root / str(examples))
    run.begin(to_dict(cifar10()), {"kind": "student"}, {})
    (run.path / "predictions").mkdir()
    labels = np.random.default_rng(0).integers(0, classes, examples)
    piece = drawn(0, 10_000, classes)[1]
    for split in ("val", "test"):
        with zipfile.ZipFile(run.path / "predictions" / f"{split}.npz", "w", zipfile.ZIP_STORED) as archive:
            with archive.open("labels.npy", "w") as file:
                np.lib.format.write_array(file, labels)
            with archive.open("logits.npy", "w", force_zip64=True) as file:
                header = {"descr": "<f4", "fortran_order": False, "shape": (examples, classes)}
                np.lib.format.write_array_header_1_0(file, header)
                for begin in range(0, examples, len(piece)):
                    file.write(piece[: examples - begin].tobytes())
        if split == "val" and examples > 10_000:  # a validation split is smaller, and is read ten times
            (run.path / "predictions" / "val.npz").unlink()
            smaller = root / "10000" / "predictions" / "val.npz"
            (run.path / "predictions" / "val.npz").write_bytes(smaller.read_bytes())
    run.write_json("result.json", {"seconds": 100.0, "metrics": {}, "temperature": 1.0})


def timed(folder: Path, out: Path) -> tuple[float, float, int]:
    """Wall-clock seconds, processor seconds and KiB of a report in its own process."""
    begin = time.perf_counter()
    command = [sys.executable, "-m", "onefold", "report", str(folder), "--out", str(out)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(out.parent / "compiled")
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"the report failed: {status}")
    return time.perf_counter() - begin, usage.ru_utime + usage.ru_stime, usage.ru_maxrss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--bare", action="store_true")
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        if chosen.memory:
            for examples in (10_000, 100_000, 1_000_000):
                write_large(root, examples, 1000)
                seconds, _, largest = timed(root / str(examples), root / "report.html")
                print(f"{examples:>9,} predictions of 1,000 classes: {seconds:6.1f} s, {largest / 1024:7.0f} MiB")
            return
        write_runs(root, chosen.runs, 10_000, chosen.classes, chosen.bare)
        each = [timed(root, root / "report.html") for _ in range(chosen.rounds + 1)][1:]
        shown = ", ".join(f"{seconds:.2f} ({busy:.2f})" for seconds, busy, _ in each)
        print(f"{chosen.runs} runs: {shown} s (of the processors), {max(size for *_, size in each) / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
