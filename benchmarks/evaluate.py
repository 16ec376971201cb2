"""Measures the memory of `onefold evaluate` and `onefold.evaluate`, which should not grow with the predictions.

    python benchmarks/evaluate.py [--examples 10000 100000 1000000] [--classes 1000] [--what teachers run network end]

teachers: DE-1 and DE-2 from the predictions of two teachers (16 GB for a million examples with 1,000 classes). run: a
single run from its predictions. network: `onefold.evaluate` of a small network, calibrated on as many examples as it is
tested on. end: the end of a training run with a test split of that size, including writing the predictions. Each runs
in a fresh process; prints the seconds and the peak memory, not counting memory-mapped files.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import shutil
import tempfile
import threading
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

ROWS = 10_000


def write(folder: Path, examples: int, classes: int, seed: int) -> None:
    """Writes a finished run with predictions for test and validation splits of the same size, piece by piece."""
    (folder / "predictions").mkdir(parents=True)
    (folder / "recipe.json").write_text("{}")
    (folder / "result.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(bytes([seed]))
    draws = np.random.default_rng(seed)
    labels = np.random.default_rng(99).integers(0, classes, examples)
    piece = draws.normal(size=(ROWS, classes)).astype(np.float32)
    piece -= np.log(np.exp(piece).sum(1, keepdims=True))
    for split in ("val", "test"):
        with zipfile.ZipFile(folder / "predictions" / f"{split}.npz", "w") as archive:
            with archive.open("labels.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, labels)
            with archive.open("logits.npy", "w", force_zip64=True) as file:
                header = {"descr": "<f4", "fortran_order": False, "shape": (examples, classes)}
                np.lib.format.write_array_header_2_0(file, header)
                for begin in range(0, examples, ROWS):
                    file.write(piece[: min(ROWS, examples - begin)].tobytes())


def own_memory() -> int:
    """Bytes of this process that are not backed by files."""
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in status if line.startswith("RssAnon"))


def inputs(examples: int, classes: int, seed: int) -> tuple[Tensor, Tensor]:
    """Inputs with four features each, which are small compared with their predictions."""
    draws = torch.Generator().manual_seed(seed)
    return torch.randn(examples, 4, generator=draws), torch.randint(classes, (examples,), generator=draws)


def teachers(folder: Path, examples: int, classes: int) -> float:
    from onefold.engine.measure.members import first_members

    del examples, classes
    return float(first_members(folder)[-1]["metrics"]["nll"])


def run(folder: Path, examples: int, classes: int) -> float:
    from onefold.engine import evaluate_run

    del examples, classes
    return evaluate_run(folder / "teacher-0")["nll"]


def network(folder: Path, examples: int, classes: int) -> float:
    import onefold

    del folder
    net = torch.nn.Sequential(torch.nn.Linear(4, classes))
    test, val = inputs(examples, classes, 0), inputs(examples, classes, 1)
    return onefold.evaluate(net, test, calibrate_on=val, batch_size=2000, device="cpu")["nll"]


def end(folder: Path, examples: int, classes: int) -> float:
    import onefold

    net = torch.nn.Sequential(torch.nn.Linear(4, classes))
    train, test = inputs(1000, classes, 0), inputs(examples, classes, 1)
    given: dict[str, Any] = {"method": "supervised", "perturbation": "none", "epochs": 1, "device": "cpu"}
    result = onefold.distill(None, net, train, val=train, test=test, out=folder / "run", **given)
    return result.metrics["nll"]


KINDS = {"teachers": teachers, "run": run, "network": network, "end": end}


def evaluated(
    what: str, folder: Path, examples: int, classes: int, told: multiprocessing.Queue[dict[str, float]]
) -> None:
    import onefold.engine  # noqa: F401 -- imports are not what is measured

    before, most, ended = own_memory(), [0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.02):
            most[0] = max(most[0], own_memory())

    watcher = threading.Thread(target=watch)
    watcher.start()
    begin = time.perf_counter()
    nll = KINDS[what](folder, examples, classes)
    seconds = time.perf_counter() - begin
    ended.set()
    watcher.join()
    told.put({"seconds": round(seconds, 1), "MB taken": round((most[0] - before) / 1e6), "nll": nll})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--what", nargs="+", choices=list(KINDS), default=list(KINDS))
    args = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    for what, examples in itertools.product(args.what, args.examples):
        folder = Path(tempfile.mkdtemp())
        try:
            for m in range({"teachers": 2, "run": 1}.get(what, 0)):
                write(folder / f"teacher-{m}", examples, args.classes, m)
            told: multiprocessing.Queue[dict[str, float]] = context.Queue()
            process = context.Process(target=evaluated, args=(what, folder, examples, args.classes, told))
            process.start()
            result = told.get()
            process.join()
        finally:
            shutil.rmtree(folder)
        print(json.dumps({"what": what, "examples": examples, "classes": args.classes} | result), flush=True)


if __name__ == "__main__":
    main()
