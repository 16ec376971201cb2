"""Detects teachers that know nothing about the data: untrained, not loaded, or for other classes or inputs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sized
from typing import Any, cast

import torch
from torch import Tensor

from onefold.data import Arrays, Split, loader_for
from onefold.data.sample import sample
from onefold.engine.device import own_randomness
from onefold.engine.training import Job
from onefold.run import RunFolder

EXAMPLES, FEW = 128, 64  # examples to test on: of arrays, and of datasets that are read one by one
FEWEST = 32
ERRORS = 2.0  # standard errors of an accuracy
ORDERED = 0.65  # for untrained networks `ordered` is 0.3 to 0.65 on handwritten digits


def untrained_note(job: Job, classes: int) -> str | None:
    """A warning about teachers that do no better than chance on some examples of val or, if it has too few, of train.

    A network is better than chance if it is right more often than the most common class occurs or, for rare classes, if
    it finds a class likelier for examples of that class than for others.
    """
    name, some = some_examples(job)
    if job.teachers is None or some is None:  # None for a user's DataLoader, which cannot be sampled repeatably
        return None
    with own_randomness(job.device), torch.no_grad():
        asked = [(job.teachers(x).float().cpu(), labels.cpu()) for x, labels in some_batches(job, some, classes)]
    answers, labels = torch.cat([a for a, _ in asked], dim=1), torch.cat([y for _, y in asked])
    right = {m: accuracy(own, labels) for m, own in enumerate(answers) if by_chance(own, labels)}
    if not right:
        return None
    many = len(right) > 1
    return (
        f"teacher{'s' * many} {', '.join(map(str, right))} look{'s' * (not many)} untrained: accuracy "
        f"{', '.join(f'{acc:.0%}' for acc in right.values())} on {len(labels)} examples of {name}, of which "
        f"{commonest(labels):.0%} are of one class. Were {'their' if many else 'its'} weights loaded, and are the "
        "order of the classes and the scale of the inputs the same as in training?"
    )


def chance_note(runs: Mapping[int, RunFolder]) -> str | None:
    """A warning about finished teachers, by number, whose stored predictions are no better than chance."""
    odd = {m: split for m, run in runs.items() if (split := split_by_chance(run)) is not None}
    if not odd:
        return None
    many, splits = len(odd) > 1, " and ".join(f"the {split} split" for split in dict.fromkeys(odd.values()))
    return (
        f"teacher{'s' * many} {', '.join(map(str, odd))} {'are' if many else 'is'} no better than chance on {splits}; "
        f"train {'them' if many else 'it'} longer or with another learning rate, and check the labels and the scale of "
        "the inputs"
    )


def split_by_chance(run: RunFolder) -> str | None:
    """The split on which a finished run is no better than chance: validation or, if that has too few examples, test."""
    for name, title in {"val": "validation", "test": "test"}.items():
        stored = run.predictions(name) if run.finished else None
        if stored is not None and len(stored[0]) >= FEWEST:
            labels, logits = map(torch.as_tensor, stored)
            return title if by_chance(logits, labels.long()) else None
    return None


def by_chance(logits: Tensor, labels: Tensor) -> bool:
    """Whether a network's answers `[B, K]` are no better than chance; False if the labels do not allow to tell."""
    share = commonest(labels)
    if len(labels) < FEWEST or share == 1:
        return False
    chance = share + ERRORS * math.sqrt(share * (1 - share) / len(labels))
    return accuracy(logits, labels) <= chance and ordered(logits, labels) < ORDERED


def accuracy(logits: Tensor, labels: Tensor) -> float:
    return float((logits.argmax(dim=1) == labels).float().mean())


def commonest(labels: Tensor) -> float:
    """The share of the most common class."""
    return float(labels.bincount().max()) / len(labels)


def some_examples(job: Job) -> tuple[str, Split | None]:
    """A few examples of val or, if it has too few to judge by, of train."""
    splits = {"val": job.val, "train": job.train}
    for name, split in splits.items():
        if split is not None:
            some = sample(split, EXAMPLES if isinstance(split, Arrays) else FEW)
            if some is None or name == "train" or len(cast(Sized, some)) >= FEWEST:
                return name, some
    return "train", None


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
