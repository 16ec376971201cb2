"""Memory of `onefold evaluate` for more and more predictions: it should not grow with them.

    python benchmarks/evaluate.py [--examples 10000 100000 1000000] [--classes 1000]

Writes predictions of random networks into a folder of two teachers (8 GB for a million of 1,000 classes), evaluates it
in a fresh process, and tells the seconds and the most memory that was taken beside files the system maps.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import shutil
import tempfile
import threading
import time
import zipfile
from pathlib import Path

import numpy as np

ROWS = 10_000


def write(folder: Path, examples: int, classes: int, seed: int) -> None:
    """A finished run with predictions of a test split, written in pieces."""
    (folder / "predictions").mkdir(parents=True)
    (folder / "recipe.json").write_text("{}")
    (folder / "result.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(bytes([seed]))
    draws = np.random.default_rng(seed)
    labels = np.random.default_rng(99).integers(0, classes, examples)
    piece = draws.normal(size=(ROWS, classes)).astype(np.float32)
    piece -= np.log(np.exp(piece).sum(1, keepdims=True))
    with zipfile.ZipFile(folder / "predictions" / "test.npz", "w") as archive:
        with archive.open("labels.npy", "w", force_zip64=True) as file:
            np.lib.format.write_array(file, labels)
        with archive.open("logits.npy", "w", force_zip64=True) as file:
            header = {"descr": "<f4", "fortran_order": False, "shape": (examples, classes)}
            np.lib.format.write_array_header_2_0(file, header)
            for begin in range(0, examples, ROWS):
                file.write(piece[: min(ROWS, examples - begin)].tobytes())


def own_memory() -> int:
    """Bytes of this process that no file stands for."""
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in status if line.startswith("RssAnon"))


def evaluated(folder: Path, told: multiprocessing.Queue[dict[str, float]]) -> None:
    from onefold.engine.measure.members import first_members

    before, most, ended = own_memory(), [0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.02):
            most[0] = max(most[0], own_memory())

    watcher = threading.Thread(target=watch)
    watcher.start()
    begin = time.perf_counter()
    rows = first_members(folder)
    seconds = time.perf_counter() - begin
    ended.set()
    watcher.join()
    found = {
        "seconds": round(seconds, 1),
        "MB taken": round((most[0] - before) / 1e6),
        "nll": rows[-1]["metrics"]["nll"],
    }
    told.put(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--classes", type=int, default=1000)
    args = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    for examples in args.examples:
        folder = Path(tempfile.mkdtemp())
        try:
            for m in range(2):
                write(folder / f"teacher-{m}", examples, args.classes, m)
            told: multiprocessing.Queue[dict[str, float]] = context.Queue()
            process = context.Process(target=evaluated, args=(folder, told))
            process.start()
            result = told.get()
            process.join()
        finally:
            shutil.rmtree(folder)
        print(json.dumps({"examples": examples, "classes": args.classes, "teachers": 2} | result), flush=True)


if __name__ == "__main__":
    main()
