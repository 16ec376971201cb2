"""Predictions of a network on a split, and their metrics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from onefold.data import Loader
from onefold.data.given import GivenLoader
from onefold.engine.distributed.world import ALONE, World
from onefold.engine.kept import Answered, Kept, kept
from onefold.engine.teachers import teacher_runs
from onefold.metrics import (
    Classification,
    evaluate_predictions,
    fit_temperature,
    log_mean_probabilities,
    tempered,
)
from onefold.run import RunFolder
from onefold.types import Ensemble, Prediction

Splits = dict[str, tuple[Tensor, Tensor]]  # labels [N] and log-probabilities [N, K]
NUMBERS = 1 << 22  # elements processed at once


@torch.no_grad()
def measure(
    served: Ensemble, predict: Prediction, loader: Loader, classes: int, world: World = ALONE
) -> dict[str, float]:
    """The metrics on a split, streamed; several processes share its batches and merge their sums.

    Where each of them iterates all of a `DataLoader`, those of the first count: its examples may be random, and all
    have to agree on which weights are the best, and on a learning rate that depends on the metrics.
    """
    metrics: Classification | None = None
    for x, labels in loader.batches():
        metrics = metrics or Classification(classes, device=x.device)
        metrics.update(predict(served(x)), labels)
    metrics = metrics or Classification(classes)  # a process may have no batch
    if not shared(loader):
        return world.first(metrics.compute)
    world.merge(metrics)
    return metrics.compute()


@torch.no_grad()
def answered(served: Ensemble, predict: Prediction, loader: Loader) -> Iterator[Answered]:
    """Labels `[B]` and log-probabilities `[B, K]` in float32 on the CPU, batch after batch."""
    for x, labels in loader.batches():
        yield labels.long().cpu(), predict(served(x)).float().cpu()


def answers_of_all(served: Ensemble, predict: Prediction, loader: Loader, world: World) -> Answered | None:
    """Labels `[N]` and log-probabilities `[N, K]` in the split's order in the first of several processes; None in the
    others.

    The processes take whole batches in turn: the network sees each batch as it would in a single process, so that the
    results are bitwise the same.
    """
    batches = answered(served, predict, loader)
    if not shared(loader):
        return kept(batches)
    every, first = Kept(), True
    own = next(batches, None)
    while any(world.collected(own is not None)):
        turn = world.gathered(own)
        first = turn is not None
        for batch in turn or ():
            if batch is not None:
                every.add(*batch)
        own = next(batches, None)
    return every.joined() if first else None


def streamed(batches: Iterable[Answered], temperature: float | None) -> dict[str, float]:
    """The metrics of predictions in a single pass over them; with a temperature, also `cnll` and `cece` at it."""
    plain: Classification | None = None
    scaled: Classification | None = None
    for labels, logits in batches:
        if plain is None or scaled is None:
            plain, scaled = Classification(logits.shape[-1]), Classification(logits.shape[-1])
        plain.update(logits, labels)
        if temperature is not None:
            scaled.update(tempered(logits, temperature), labels)
    if plain is None or scaled is None:
        raise ValueError("test: expected at least one example, got none")
    if temperature is None:
        return plain.compute()
    calibrated = scaled.compute()
    return plain.compute() | {"cnll": calibrated["nll"], "cece": calibrated["ece"], "temperature": temperature}


def shared(loader: Loader) -> bool:
    """Whether processes share a split's batches; a user's `DataLoader` is iterated in full by each of them."""
    return not isinstance(loader, GivenLoader)


def metrics_of(splits: dict[str, tuple[Tensor, Tensor]]) -> dict[str, float]:
    """The metrics on the test split, calibrated on the validation split; on the validation split if there is no test.

    Logits are `[N, K]`, or `[M, N, K]` for members, whose probabilities are averaged.
    """
    val = splits.get("val")
    if "test" not in splits:
        return {} if val is None else evaluate_predictions(val[1], val[0])
    labels, logits = splits["test"]
    if val is None:
        return evaluate_predictions(logits, labels)
    return evaluate_predictions(logits, labels, val_logits=val[1], val_labels=val[0])


def evaluate_run(folder: Path | str, members: int | None = None) -> dict[str, float]:
    """The metrics of a finished run, from its stored predictions alone; for a folder of teachers, those of the ensemble
    of all of them or of the first `members`."""
    run = RunFolder(folder)
    if not run.started and not teacher_folders(run.path):
        raise ValueError(
            f"{run.path} is neither a finished run nor a folder of teachers; give one of these "
            "('onefold evaluate' and 'onefold report' also take folders that contain runs)"
        )
    if run.started:
        run.result  # noqa: B018 -- raises if the run is not finished
        return metrics_of(stored(run))
    return metrics_together(teachers_stored(run.path, members))


def temperature_of(folder: Path | str) -> float | None:
    """The temperature that `evaluate_run` returns among its metrics; None if there is no validation split."""
    run = RunFolder(folder)
    runs = [run] if run.started else [RunFolder(path) for path in teacher_folders(run.path)]
    if not all(run.predictions_file("val").exists() for run in runs):
        return None
    if run.started:
        labels, logits = stored(run)["val"]
        return fit_temperature(logits, labels)
    each = teachers_stored(run.path)
    return fit_temperature(joint(each, "val"), each[0]["val"][0])


def teacher_folders(folder: Path) -> list[Path]:
    """The folders of all teachers in a folder, in order."""
    return sorted(folder.glob("teacher-*"), key=lambda p: (len(p.name), p.name))


def teachers_stored(folder: Path, members: int | None = None) -> list[Splits]:
    """The stored predictions of all teachers in a folder, or of the first `members`, in order."""
    each = []
    asked = teacher_folders(folder) if members is None else [run.path for run in teacher_runs(folder, members)]
    for path in asked:
        if not RunFolder(path).finished:
            raise ValueError(f"{path} is not finished; run `onefold train` again to resume it")
        each.append(stored(RunFolder(path)))
    for split in each[0]:
        labels = each[0][split][0]
        if any(split not in own or not torch.equal(own[split][0], labels) for own in each):
            raise ValueError(f"{folder}: expected teachers evaluated on the same {split} split, got different labels")
    return each


def metrics_together(each: Sequence[Splits]) -> dict[str, float]:
    """The metrics, as of `metrics_of`, for the ensemble of networks whose predictions are stored.

    To save memory, the test split is processed in pieces, and for the validation split only the ensemble's predictions
    are kept.
    """
    if "test" not in each[0]:
        labels = each[0]["val"][0]
        return evaluate_predictions(joint(each, "val"), labels)
    labels, logits = each[0]["test"]
    temperature = fit_temperature(joint(each, "val"), each[0]["val"][0]) if "val" in each[0] else None
    pieces = rows_of(len(labels), len(each) * logits.shape[1])
    return streamed(
        ((labels[rows], torch.stack([own["test"][1][rows] for own in each])) for rows in pieces), temperature
    )


def joint(each: Sequence[Splits], split: str) -> Tensor:
    """The ensemble's log-probabilities `[N, K]`."""
    labels, logits = each[0][split]
    pieces = rows_of(len(labels), len(each) * logits.shape[1])
    together = (log_mean_probabilities(torch.stack([own[split][1][rows] for own in each])).float() for rows in pieces)
    return kept((labels[:0], answers) for answers in together)[1]


def rows_of(examples: int, width: int) -> Iterator[slice]:
    """Slices of the examples, each small enough that rows of `width` elements come to a few million."""
    rows = max(1, NUMBERS // max(1, width))
    return (slice(begin, begin + rows) for begin in range(0, examples, rows))


def stored(run: RunFolder) -> Splits:
    """Labels and log-probabilities of every split stored in a run's folder."""
    found = {split: run.predictions(split) for split in ("val", "test")}
    if not any(found.values()):
        raise ValueError(
            f"{run.path}: expected predictions on a val or test split, got none; train it with one of them"
        )
    return {split: (torch.from_numpy(p[0]), torch.from_numpy(floats(p[1]))) for split, p in found.items() if p}


def floats(logits: npt.NDArray[np.floating]) -> npt.NDArray[np.float32]:
    return logits.astype(np.float32, copy=False)
