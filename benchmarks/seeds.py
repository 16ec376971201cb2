"""Checks that the fast path learns as well as the eager one: short training runs, with several seeds each.

    python benchmarks/seeds.py [--recipe cifar10] [--epochs 5] [--seeds 3] [--data-root data] [--out FILE]

Trains a network on labels, and a LatentBE + TDiv-SDiv student of two teachers that are trained first; each with the
fast path in the device's own precision, and without it in float32. Compares accuracy and NLL on the test split; means
agree if they are at most two standard deviations of their difference apart. Nothing is timed: runs are short, mostly
start-up, and several processes share the device.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from onefold.engine.device import device_named
from onefold.engine.keeping.environment import environment, now

WAYS = {"fast": [], "eager": ["--no-fast", "--precision", "float32"]}
TAUGHT = ["--recipe.members", "2", "--distill.method", "latentbe", "--distill.perturbation", "tdiv-sdiv"]


def run(words: list[str]) -> None:
    command = [sys.executable, "-m", "onefold", *words]
    ended = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"NO_COLOR": "1"})
    if ended.returncode != 0:
        raise SystemExit(ended.stderr[-3000:])


def compared(found: dict[str, list[dict[str, float]]], metric: str) -> dict[str, Any]:
    """Means and deviations for both ways, and the difference of the means in its standard deviations."""
    values = {way: [each[metric] for each in runs] for way, runs in found.items()}
    mean = {way: statistics.mean(each) for way, each in values.items()}
    spread = {way: statistics.stdev(each) for way, each in values.items()}
    error = (sum(spread[way] ** 2 / len(values[way]) for way in values)) ** 0.5
    return {"values": values, "mean": mean, "deviation": spread, "apart": (mean["fast"] - mean["eager"]) / error}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="cifar10")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--data-root", default="data")
    parser.add_argument("--together", type=int, default=7, help="runs at a time")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    common = [args.recipe, "--epochs", str(args.epochs), "--optim.warmup-epochs", "1", "--data.root", args.data_root]
    rows = []
    with tempfile.TemporaryDirectory() as place:
        teachers = f"{place}/teachers"
        kinds = {"supervised": ["train", *common, "--recipe.members", "1"]}
        kinds["LatentBE-2 + TDiv-SDiv"] = ["distill", *common, *TAUGHT, "--teachers", teachers]
        folders = {
            (kind, way): [Path(place) / f"{words[0]}-{way}-{seed}" for seed in range(args.seeds)]
            for kind, words in kinds.items()
            for way in WAYS
        }
        first = [["train", *common, *TAUGHT, "--seed", "100", "--out", teachers]]
        for kind, words in kinds.items():
            runs = [
                [*words, *flags, "--seed", str(k), "--out", str(folder)]
                for way, flags in WAYS.items()
                for k, folder in enumerate(folders[kind, way])
            ]
            with ThreadPoolExecutor(args.together) as processes:
                list(processes.map(run, first + runs))
            first = []
            last = "teacher-0/result.json" if words[0] == "train" else "result.json"
            found = {
                way: [json.loads((folder / last).read_text())["metrics"] for folder in folders[kind, way]]
                for way in WAYS
            }
            for metric in ("acc", "nll"):
                row = {"what": kind, "metric": metric} | compared(found, metric)
                rows.append(row)
                shown = "  ".join(f"{way} {row['mean'][way]:.4f} ± {row['deviation'][way]:.4f}" for way in WAYS)
                print(f"{kind:24} {metric:4} {shown}  {row['apart']:+.1f} deviations apart", flush=True)
            if args.out:
                about = {"date": now(), "environment": environment(device_named("auto"))}
                args.out.write_text(json.dumps(about | {"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
