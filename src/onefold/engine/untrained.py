"""Detects teachers that know nothing about the data: untrained, not loaded, or for other classes or inputs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from onefold.data import Arrays, Split, loader_for
from onefold.data.sample import sample
from onefold.engine.device import own_randomness
from onefold.engine.training import Job

EXAMPLES, FEW = 128, 64  # examples to test on: of arrays, and of datasets that are read one by one
FEWEST = 32
ERRORS = 2.0  # standard errors of an accuracy
ORDERED = 0.65  # for untrained networks `ordered` is 0.3 to 0.65 on handwritten digits


def untrained_note(job: Job, classes: int) -> str | None:
    """A warning about teachers that do no better than chance on some examples of val, or of train if there is no val.

    A network is better than chance if it is right more often than the most common class occurs or, for rare classes, if
    it finds a class likelier for examples of that class than for others.
    """
    name, split = ("train", job.train) if job.val is None else ("val", job.val)
    some = sample(split, EXAMPLES if isinstance(split, Arrays) else FEW)
    if job.teachers is None or some is None:  # None for a user's DataLoader, which cannot be sampled repeatably
        return None
    with own_randomness(job.device), torch.no_grad():
        asked = [(job.teachers(x).float().cpu(), labels.cpu()) for x, labels in some_batches(job, some, classes)]
    answers, labels = torch.cat([a for a, _ in asked], dim=1), torch.cat([y for _, y in asked])
    commonest = float(labels.bincount().max()) / len(labels)
    if len(labels) < FEWEST or commonest == 1:
        return None
    chance = commonest + ERRORS * math.sqrt(commonest * (1 - commonest) / len(labels))
    right = {m: float((own.argmax(dim=1) == labels).float().mean()) for m, own in enumerate(answers)}
    odd = [m for m, acc in right.items() if acc <= chance and ordered(answers[m], labels) < ORDERED]
    if not odd:
        return None
    many = len(odd) > 1
    return (
        f"teacher{'s' * many} {', '.join(map(str, odd))} look{'s' * (not many)} untrained: right about "
        f"{', '.join(f'{right[m]:.0%}' for m in odd)} of {len(labels)} examples of {name}, of which "
        f"{commonest:.0%} are of one class. Were {'their' if many else 'its'} weights loaded, and are the order of the "
        "classes and the scale of the inputs those of the training?"
    )


def some_batches(job: Job, some: Split, classes: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches no larger than in training, so that they fit into memory."""
    size = min(EXAMPLES, job.settings.optim.batch_size)
    options: dict[str, Any] = {"augment": job.augment, "device": job.device, "workers": 0, "classes": classes}
    return loader_for(some, size, train=False, **options).batches()


def ordered(logits: Tensor, labels: Tensor) -> float:
    """How often an example of a class gets a higher probability for it than an example of another class: the area
    under the ROC curve for logits `[B, K]`, averaged over classes. One half is chance, however rare a class is."""
    ranks = logits.double().log_softmax(-1).argsort(dim=0).argsort(dim=0)
    own = ranks.gather(1, labels[:, None]).squeeze(1).double()  # each example's rank among all, for its own class
    areas = []
    for label in labels.unique():
        inside = labels == label
        count = int(inside.sum())
        pairs = float(own[inside].sum()) - count * (count - 1) / 2
        areas.append(pairs / (count * (len(labels) - count)))
    return sum(areas) / len(areas)
