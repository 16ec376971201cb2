#!/usr/bin/env python3
"""Keeps runs in the repository: `python dev/keep_results.py runs/reproduce --out results`.

Copies from every run in the folders, finished or not, all that tables and pictures need, in little space: no weights,
no checkpoints. A run keeps the last three parts of its path, as laid out by `onefold reproduce`:
SETTING/teachers/teacher-0, SETTING/seed-0/latentbe-of-4. `onefold report results` and `onefold evaluate` read these
copies like any other run. `python dev/results.py` then rebuilds RESULTS.md, its pictures and the README's table.

recipe.json, run.json, env.json, result.json   unchanged, except that paths are shortened to their last part
measurements/**/*.json                         likewise
metrics.jsonl     one line per epoch with the mean training loss; all evaluation and diversity lines unchanged
predictions/      in the compact form, each file below a megabyte; left out if that would change the metrics
"""

from __future__ import annotations

import argparse
import functools
import json
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from onefold.engine.evaluate import Splits, metrics_of, stored
from onefold.metrics import fit_temperature, log_mean_probabilities
from onefold.predictions import packed
from onefold.report.runs import found
from onefold.run import RunFolder, write_aside

LIMIT = 1_000_000  # bytes of a prediction file, at most
NEXT = 2  # most probable classes of an ensemble that its members store exactly, so that its prediction cannot change
TOLERANCE = 5e-5  # for the metrics below, which are shown with four decimals
SHOWN = ("nll", "ece", "cnll", "cece")
COPIED = ("env.json", "run.json", "recipe.json", "speed.json")
PLACE = re.compile(r"(?<![\w.])~?(?:/[\w.@+~=-]+)+/?")  # an absolute path


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Keeps runs in the repository, without weights.")
    parser.add_argument("runs", nargs="+", help="run folders, or folders that hold runs at any depth")
    parser.add_argument("--out", default="results", help="where they are kept")
    options = parser.parse_args(arguments)
    try:
        for sentence in keep(options.runs, Path(options.out)):
            print(sentence, flush=True)
    except (ValueError, OSError) as error:
        print(f"keep_results: {error}", file=sys.stderr)
        return 2
    return 0


def keep(paths: Iterable[Path | str], out: Path) -> Iterable[str]:
    """Keeps all runs in some folders; yields a sentence about each."""
    runs = list(dict.fromkeys(found(paths)))
    places = {run: out.joinpath(*run.parts[-3:]) for run in runs}
    if len(set(places.values())) < len(runs):
        twice = next(p for p in places.values() if list(places.values()).count(p) > 1)
        raise ValueError(f"expected different runs, got several that would be kept as {twice}; name those to keep")
    for run, place in places.items():
        try:
            yield f"{place}: {keep_run(RunFolder(run), RunFolder(place))}"
        except ValueError as error:  # a damaged run must not stop the others
            yield f"{place}: left out: {error}"
    for folder in dict.fromkeys(run.parent for run in runs):
        place = out.joinpath(*folder.parts[-2:])
        copy_measurements(folder, place)  # of the ensemble of teachers
        if moved := of_ensemble(folder, place):
            told = beyond(moved) or f"{max(moved.values()):.0e} at most"
            yield f"{place}: as an ensemble, metrics are off by {told}"


def keep_run(run: RunFolder, kept: RunFolder) -> str:
    """Keeps one run, unless the copy that is already there got further."""
    if kept.started:
        kept.check_same(run.recipe, kept.about)  # raises if the copy is of a different experiment
    reached, before = progress(run), progress(kept)
    if before > reached:
        return f"kept as it was, at step {before[1]:,}: {run.path} is only at {reached[1]:,}"
    kept.path.mkdir(parents=True, exist_ok=True)
    for name in COPIED:
        copy_json(run.path / name, kept.path / name)
    lines = (json.dumps(without_places(record)) + "\n" for record in thinned(run.metrics()))
    write_aside(kept.path / "metrics.jsonl", "".join(lines).encode())
    copy_measurements(run.path, kept.path)
    if not run.finished:
        return f"unfinished, at step {reached[1]:,}"
    told = keep_predictions(run, kept)
    copy_json(run.path / "result.json", kept.path / "result.json")  # last, because it marks the folder as complete
    return f"finished; {told}"


def progress(run: RunFolder) -> tuple[bool, int]:
    """Whether a run is finished, and the last step that it logged."""
    steps = [int(line.get("step", 0)) for line in run.metrics()] if run.started else []
    return run.finished, max(steps, default=0)


def thinned(records: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Reduces training lines to one per epoch: its last, with the mean loss, which is what curves show."""
    kept: list[dict[str, Any]] = []
    of_epoch: dict[object, tuple[int, list[float]]] = {}  # the index of the epoch's line, and its losses
    for record in records:
        if record.get("kind") != "train":
            kept.append(record)
            continue
        place, losses = of_epoch.setdefault(record.get("epoch"), (len(kept), []))
        losses.append(record["loss"])
        line = record | {"loss": sum(losses) / len(losses)} | ({"lines": len(losses)} if len(losses) > 1 else {})
        kept[place : place + 1] = [line]
    return kept


def keep_predictions(run: RunFolder, kept: RunFolder) -> str:
    """Packs predictions; they are left out if a file is too large or a metric would change. Returns what was done."""
    splits, also = stored(run), answered_together(run.path.parent)
    temperature = fit_temperature(splits["val"][1], splits["val"][0]) if "val" in splits else 1.0
    files = {s: packed(y.numpy(), z.numpy(), temperature, LIMIT, also.get(s)) for s, (y, z) in splits.items()}
    (kept.path / "predictions").mkdir(exist_ok=True)
    for split, content in files.items():
        if content is None:
            shutil.rmtree(kept.path / "predictions")
            return f"predictions are left out, for those of {split} do not fit into {LIMIT:,} bytes"
        write_aside(kept.predictions_file(split), content)
    moved = differences(splits, stored(kept))
    if beyond(moved):
        shutil.rmtree(kept.path / "predictions")
        return f"predictions are left out, for they would change {beyond(moved)}"
    size = sum(len(content) for content in files.values() if content is not None)
    return f"predictions in {size / 1000:,.0f} KB, metrics off by {max(moved.values()):.0e} at most"


def of_ensemble(folder: Path, kept: Path) -> dict[str, float]:
    """How much the metrics of the ensemble of finished teachers have changed; empty if there is no ensemble."""
    ours, theirs = teachers_in(folder), teachers_in(kept)
    if len(ours) < 2 or len(ours) != len(theirs):
        return {}
    return differences(*({s: (each[0][s][0], together(each, s)) for s in each[0]} for each in (ours, theirs)))


@functools.cache
def answered_together(folder: Path) -> dict[str, npt.NDArray[np.int64]]:
    """The classes that ensembles of the first 2, 3, ... teachers predict, which every teacher must store exactly."""
    each = teachers_in(folder)
    sizes = range(2, len(each) + 1)
    splits = each[0] if len(each) > 1 else {}
    return {s: torch.cat([together(each[:m], s).topk(NEXT).indices for m in sizes], dim=1).numpy() for s in splits}


def teachers_in(folder: Path) -> list[Splits]:
    """The predictions of finished teachers, without any that are for different numbers of examples."""
    numbers = range(sum(path.is_dir() for path in folder.glob("teacher-*")))
    runs = [RunFolder(folder / f"teacher-{m}") for m in numbers]
    each = [stored(run) for run in runs if run.finished and run.predictions_file("test").exists()]
    return [one for one in each if {s: len(p[0]) for s, p in one.items()} == {s: len(p[0]) for s, p in each[0].items()}]


def together(each: Sequence[Splits], split: str) -> torch.Tensor:
    return log_mean_probabilities(torch.stack([own[split][1] for own in each]))


def differences(splits: Splits, kept: Splits) -> dict[str, float]:
    """How much the metrics that are shown have changed; accuracy and labels must not change at all."""
    ours, theirs = metrics_of(splits), metrics_of(kept)
    moved = {name: abs(ours[name] - theirs[name]) for name in ("acc", *SHOWN) if name in ours}
    same = all(torch.equal(splits[s][0], kept[s][0]) for s in splits)
    return moved if same else moved | {"labels": 1.0}


def beyond(moved: dict[str, float]) -> str:
    """The metrics that have changed too much, in words."""
    far = {name: value for name, value in moved.items() if value > (TOLERANCE if name in SHOWN else 0)}
    return ", ".join(f"{name} by {value:.1e}" for name, value in far.items())


def copy_measurements(run: Path, kept: Path) -> None:
    """Copies the measurements that are complete."""
    for file in sorted(run.glob("measurements/**/*.json")):
        if not file.name.endswith(".partial.json"):
            copy_json(file, kept / file.relative_to(run))


def copy_json(file: Path, kept: Path) -> None:
    if file.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        content = without_places(json.loads(file.read_text()))
        write_aside(kept, (json.dumps(content, indent=1) + "\n").encode())


def without_places(content: Any) -> Any:
    """Replaces absolute paths, which mean nothing on other machines, by their last part."""
    if isinstance(content, str):
        return PLACE.sub(lambda path: path.group().rstrip("/").rsplit("/", 1)[-1], content)
    if isinstance(content, dict):
        return {key: without_places(value) for key, value in content.items()}
    return [without_places(value) for value in content] if isinstance(content, list) else content


if __name__ == "__main__":
    sys.exit(main())
