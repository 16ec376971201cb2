"""An endless sequence of training steps, taken as in the training loop."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from onefold.bench.timing import Rounds
from onefold.engine.abreast import Going, abreast
from onefold.engine.losses import Losses
from onefold.engine.training import Training


def batches(training: Training, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """The full batches of one epoch after the other."""
    for epoch in itertools.count():
        for x, labels in training.batches(epoch, 0):
            if len(x) == size:
                yield x, labels


def stepping(training: Training, size: int, at: int = 0) -> Iterator[None]:
    """Takes a step for every batch of the given size, with the learning rate of step `at`."""
    losses = Losses(training.job.settings.log_every, training.job.device)
    training.student.train()
    for x, labels in batches(training, size):
        rate = training.schedule.before(at)
        losses.append(training.step(x, labels), rate)
        if len(losses) == training.job.settings.log_every:
            losses.read()
            losses.clear()
        yield


def rounds_of(steps: Sequence[Iterator[None]], device: torch.device) -> Rounds:
    """A round is one step of each training; on a GPU side by side, as when the engine trains several at once."""

    def rounds(count: int) -> None:
        if len(steps) > 1 and device.type == "cuda":
            abreast([some(each, count) for each in steps], device)
            return
        for _ in range(count):
            for each in steps:
                next(each)

    return rounds


def some(steps: Iterator[None], count: int) -> Going[None]:
    for _ in range(count):
        next(steps)
        yield False
