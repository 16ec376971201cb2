"""What a network answers for a split, and how good that is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from onefold.data import Loader
from onefold.metrics import Classification, evaluate_predictions
from onefold.run import RunFolder
from onefold.types import Ensemble, Prediction


@torch.no_grad()
def measure(served: Ensemble, predict: Prediction, loader: Loader, classes: int) -> dict[str, float]:
    """The metrics of a split, streamed."""
    metrics = Classification(classes)
    for x, labels in loader.batches():
        metrics.update(predict(served(x)), labels)
    return metrics.compute()


@torch.no_grad()
def answers(served: Ensemble, predict: Prediction, loader: Loader) -> tuple[Tensor, Tensor]:
    """Labels `[N]` and log-probabilities `[N, K]` in float32, on the host."""
    all_labels, all_logits = [], []
    for x, labels in loader.batches():
        all_logits.append(predict(served(x)).float().cpu())
        all_labels.append(labels.long().cpu())
    return torch.cat(all_labels), torch.cat(all_logits)


def metrics_of(splits: dict[str, tuple[Tensor, Tensor]]) -> dict[str, float]:
    """The metrics of the test split, calibrated on the validation split; those of the latter where it is alone.

    Logits are `[N, K]`, or `[M, N, K]` of members, whose probabilities are averaged.
    """
    val = splits.get("val")
    if "test" not in splits:
        return {} if val is None else evaluate_predictions(val[1], val[0])
    labels, logits = splits["test"]
    if val is None:
        return evaluate_predictions(logits, labels)
    return evaluate_predictions(logits, labels, val_logits=val[1], val_labels=val[0])


def evaluate_run(folder: Path | str) -> dict[str, float]:
    """The metrics of a finished run from its predictions alone; of a folder of teachers, those of their ensemble."""
    run = RunFolder(folder)
    members = sorted(run.path.glob("teacher-*"), key=lambda p: (len(p.name), p.name))
    if run.started or not members:
        run.result  # noqa: B018 -- refuses what is not finished
        return metrics_of(stored(run))
    each = []
    for path in members:
        if not RunFolder(path).finished:
            raise ValueError(f"{path} is not finished; run `onefold train` again to go on with it")
        each.append(stored(RunFolder(path)))
    together: dict[str, tuple[Tensor, Tensor]] = {}
    for split in each[0]:
        labels = each[0][split][0]
        if any(split not in own or not torch.equal(own[split][0], labels) for own in each):
            raise ValueError(f"{run.path}: expected teachers evaluated on the same {split} split, got different labels")
        together[split] = labels, torch.stack([own[split][1] for own in each])
    return metrics_of(together)


def stored(run: RunFolder) -> dict[str, tuple[Tensor, Tensor]]:
    """Labels and log-probabilities of every split in a run's folder."""
    found = {split: run.predictions(split) for split in ("val", "test")}
    if not any(found.values()):
        raise ValueError(f"{run.path}: expected predictions of a val or test split, got none; give them when it is run")
    return {split: (torch.from_numpy(p[0]), torch.from_numpy(floats(p[1]))) for split, p in found.items() if p}


def floats(logits: npt.NDArray[np.floating]) -> npt.NDArray[np.float32]:
    return logits.astype(np.float32)
