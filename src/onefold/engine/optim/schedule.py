"""The learning rate, a pure function of the step; or a scheduler of the user's."""

from __future__ import annotations

import math
from typing import Any, Protocol

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

Rate = float | Tensor  # a tensor where the device alone knows it


class Schedule(Protocol):
    """Sets the rates for a step, and is told when the step is done."""

    def before(self, step: int) -> Rate:
        """Sets the rates; returns that of the weights. Waits for nothing."""

    def after(self) -> None: ...

    def measured(self, metrics: dict[str, float]) -> None:
        """Told what an evaluation found."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


def warmup_cosine(step: int, steps: int, warmup: float, start: float) -> float:
    """What the rate is multiplied by at a step of `steps`: from `start` up to one in a line, then to zero in a cosine.

    start + (1 - start) t / w for t < w, then (1 + cos(pi (t - w) / (T - w))) / 2.
    """
    if step < warmup:
        return start + (1 - start) * step / warmup
    return (1 + math.cos(math.pi * (step - warmup) / max(steps - warmup, 1))) / 2


class WarmupCosine:
    """Multiplies each group's own rate: the factors of a batch ensemble have another than the weights."""

    def __init__(self, optimizer: Optimizer, steps: int, warmup: float, start: float) -> None:
        self.optimizer, self.steps, self.warmup, self.start = optimizer, steps, warmup, start
        self.rates = [float(group["lr"]) for group in optimizer.param_groups]

    def before(self, step: int) -> float:
        multiplier = warmup_cosine(step, self.steps, self.warmup, self.start)
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate * multiplier)  # in place: a captured step reads it from there
            else:
                group["lr"] = rate * multiplier
        return self.rates[0] * multiplier  # known without a look at the device

    def after(self) -> None:
        """Nothing to remember."""

    def measured(self, metrics: dict[str, float]) -> None:
        """The rate depends on the step alone."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Nothing was remembered."""


class Given:
    """A scheduler of torch's kind, stepped once a step."""

    def __init__(self, scheduler: LRScheduler) -> None:
        self.scheduler = scheduler

    def before(self, step: int) -> Rate:  # noqa: ARG002
        rate = self.scheduler.optimizer.param_groups[0]["lr"]  # set when the step before was done
        return rate.detach().clone() if isinstance(rate, Tensor) else float(rate)

    def after(self) -> None:
        self.scheduler.step()

    def measured(self, metrics: dict[str, float]) -> None:
        """It goes by the steps."""

    def state_dict(self) -> dict[str, Any]:
        return self.scheduler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.scheduler.load_state_dict(state)


class OnPlateau(Given):
    """ReduceLROnPlateau, stepped once an evaluation: with the NLL, or with the accuracy where more is better."""

    def __init__(self, scheduler: ReduceLROnPlateau) -> None:
        super().__init__(scheduler)
        self.plateau = scheduler

    def after(self) -> None:
        """It goes by what is measured."""

    def measured(self, metrics: dict[str, float]) -> None:
        self.plateau.step(metrics["acc" if self.plateau.mode == "max" else "nll"])
