"""What a training run reports as it goes: its losses, its speed, and a line for each epoch."""

from __future__ import annotations

import logging
import math
import time

from onefold.engine.abreast import sharing
from onefold.engine.keeping.keeper import Keeper
from onefold.engine.losses import Losses, check_finite
from onefold.engine.optim.schedule import Rate
from onefold.engine.progress import LOG, Progress, epoch_line

LOOK = 1.0  # seconds between two progress reports, at least


class Watch:
    """Reads the losses only now and then, because that syncs with the device, and reports them."""

    def __init__(
        self, keeper: Keeper, progress: Progress, losses: Losses, pace: Pace, log_every: int, steps: int, total: int
    ) -> None:
        self.keeper, self.progress, self.losses, self.pace = keeper, progress, losses, pace
        self.log_every, self.steps, self.total = log_every, steps, total
        self.loss = math.nan  # the mean of the losses read last

    def after_step(self, step: int, rate: Rate, examples: int) -> None:
        """Writes a log record every `log_every` steps and after an epoch, and reports progress about once a second."""
        log = len(self.losses) == self.log_every or step % self.steps == 0
        if not log and not self.pace.look_due():
            return
        values, lr = check_finite(self.losses, step, self.keeper.last), float(rate)
        self.loss = sum(values) / len(values)
        self.progress.update(step, self.total, self.loss, lr, self.pace.examples_a_second(step, examples))
        if log:
            record = {"kind": "train", "step": step, "epoch": -(-step // self.steps), "loss": self.loss, "lr": lr}
            self.keeper.log(record | {"seconds": self.pace.seconds()})
            self.losses.clear()

    def after_epoch(self, epoch: int, epochs: int, measured: dict[str, float] | None) -> None:
        """Logs a line about the epoch if the logger is enabled for INFO."""
        if LOG.isEnabledFor(logging.INFO) and (self.pace.line_due() or epoch == epochs):
            name = "" if self.keeper.run is None else f"{self.keeper.run.path}: "
            LOG.info(name + epoch_line(epoch, epochs, self.loss, measured, self.pace.seconds()))


class Pace:
    """The clock of a run: how long it has taken, how fast it is, and what is due."""

    def __init__(self, step: int, seconds: float) -> None:
        now = time.monotonic()
        self.taken, self.counted, self.looked, self.kept, self.steps = seconds, now, now, now, (step, now)
        self.told = -math.inf

    def seconds(self) -> float:
        """Seconds of training so far; if runs take turns on a device, this run's share of the time."""
        now = time.monotonic()
        self.taken += (now - self.counted) / sharing()
        self.counted = now
        return round(self.taken, 3)

    def look_due(self) -> bool:
        due = time.monotonic() - self.looked >= LOOK
        if due:
            self.looked = time.monotonic()
        return due

    def line_due(self) -> bool:
        """Whether to log a line: if epochs are shorter than a second, not each of them gets one."""
        due = time.monotonic() - self.told >= LOOK
        if due:
            self.told = time.monotonic()
        return due

    def checkpoint_due(self, minutes: float) -> bool:
        return time.monotonic() - self.kept >= 60 * minutes

    def saved(self) -> None:
        self.kept = time.monotonic()

    def examples_a_second(self, step: int, batch: int) -> float:
        """Examples per second since the last call."""
        (before, then), now = self.steps, time.monotonic()
        self.steps = step, now
        return (step - before) * batch / max(now - then, 1e-9)
