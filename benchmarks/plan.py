"""Compares the estimates of `onefold plan` with the actual commands: whole runs of teachers and student.

    python benchmarks/plan.py [--settings "cifar10 --epochs 3 --data.root data" ...] [--out FILE]
    python benchmarks/plan.py --teachers runs/teachers --keep runs/students --settings ...

Each setting has the arguments of `onefold plan`. Every command runs in its own process: first `plan`, then complete
runs of `train` and `distill`. Times are meaningless on a machine that is busy with something else; processor seconds
are recorded too. {random} in a setting stands for an npz file of 2,000 random images of 32 x 32. With --teachers, only
students are trained, from existing teachers; with --keep, the runs are kept, in folders 0, 1, ... for the settings.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

SETTINGS = [
    "digits",
    "digits --network wrn16x4 --epochs 10 --recipe.members 2",
    "digits --network wrn28x1 --epochs 5 --recipe.members 2 --data.source npz:{random}",
]
# Records the peak memory of a command: on a GPU of all tensors, else of its process.
COMMAND = """
import json, sys
from onefold.cli import main
code = main()
import torch
from onefold.bench.memory import peak_bytes
device = torch.device("cuda" if torch.cuda.is_initialized() else "cpu")
print(json.dumps({"device": device.type, "memory": peak_bytes(device)}), file=open(sys.argv[-1] + ".peak", "w"))
sys.exit(code)
"""


def command(words: list[str], out: Path) -> dict[str, Any]:
    """Runs a command; returns its wall-clock seconds, processor seconds and peak bytes."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, *words, "--out", str(out)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"NO_COLOR": "1"},
    )
    seconds, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise SystemExit(f"{shlex.join(words)}:\n{done.stderr[-3000:]}")
    of_processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    peak: dict[str, Any] = json.loads(Path(f"{out}.peak").read_text())
    return {"seconds": seconds, "processor_seconds": of_processor, **peak}


def compared(setting: str, folder: Path, random: Path, given: Path | None) -> list[dict[str, Any]]:
    words = shlex.split(setting.replace("{random}", str(random)))
    command(["plan", *words], folder / "plan.json")
    plan = json.loads((folder / "plan.json").read_text())
    teachers = folder / "teachers" if given is None else given
    taken = [] if given else [command(["train", *words], teachers)]
    taken.append(command(["distill", *words, "--teachers", str(teachers)], folder / "student"))
    rows = []
    for phase, found in zip(plan["phases"][-len(taken) :], taken, strict=True):
        said = {"seconds": phase["times"]["total"], "memory": phase["measured"]["memory"]}
        ratios = {name: said[name] / found[name] for name in said}
        rows.append({"setting": setting, "phase": phase["name"], "plan": said, "found": found, "ratio": ratios})
        print(
            f"{setting}, {phase['name']}: {said['seconds']:.1f} s planned, {found['seconds']:.1f} taken "
            f"({ratios['seconds']:.2f}); {said['memory'] / 1e9:.2f} GB planned, {found['memory'] / 1e9:.2f} taken "
            f"({ratios['memory']:.2f})",
            flush=True,
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", nargs="+", default=SETTINGS)
    parser.add_argument("--teachers", type=Path)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as place:
        draws = np.random.default_rng(0)
        splits = {"train": 1_600, "test": 400}
        arrays: dict[str, Any] = {f"{name}_y": np.arange(n) % 10 for name, n in splits.items()}
        arrays |= {f"{name}_x": draws.integers(0, 256, (n, 32, 32, 3), np.uint8) for name, n in splits.items()}
        np.savez(Path(place) / "random.npz", **arrays)
        for number, setting in enumerate(chosen.settings):
            folder = (chosen.keep or Path(place)) / str(number)
            folder.mkdir(parents=True)
            rows += compared(setting, folder, Path(place) / "random.npz", chosen.teachers)
            if chosen.out is not None:
                save(rows, chosen.out)


def save(rows: list[dict[str, Any]], file: Path) -> None:
    from onefold.engine.device import device_named
    from onefold.engine.keeping.environment import environment, now

    about = environment(device_named(rows[0]["found"]["device"]))
    file.write_text(json.dumps({"date": now(), "environment": about, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
