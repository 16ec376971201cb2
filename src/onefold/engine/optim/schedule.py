"""The learning rate: a pure function of the step, or a user's scheduler."""

from __future__ import annotations

import math
from typing import Any, Protocol

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

Rate = float | Tensor  # a tensor if only the device knows the value


class Schedule(Protocol):
    """Sets the learning rates for a step, and is told when the step is done."""

    def before(self, step: int) -> Rate:
        """Sets the learning rates and returns that of the shared weights, without a device sync."""

    def after(self) -> None: ...

    def measured(self, metrics: dict[str, float]) -> None:
        """Receives the metrics of an evaluation."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


def warmup_cosine(step: int, steps: int, warmup: float, start: float) -> float:
    """The multiplier of the learning rate at a step of `steps`: linear from `start` to one, then a cosine to zero.

    start + (1 - start) t / w for t < w, then (1 + cos(pi (t - w) / (T - w))) / 2.
    """
    if step < warmup:
        return start + (1 - start) * step / warmup
    return (1 + math.cos(math.pi * (step - warmup) / max(steps - warmup, 1))) / 2


class WarmupCosine:
    """Multiplies each group's own learning rate: a batch ensemble's factors have a different one from the weights."""

    def __init__(self, optimizer: Optimizer, steps: int, warmup: float, start: float) -> None:
        self.optimizer, self.steps, self.warmup, self.start = optimizer, steps, warmup, start
        self.rates = [float(group["lr"]) for group in optimizer.param_groups]

    def before(self, step: int) -> float:
        multiplier = warmup_cosine(step, self.steps, self.warmup, self.start)
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate * multiplier)  # in place, because a captured step reads this tensor
            else:
                group["lr"] = rate * multiplier
        return self.rates[0] * multiplier  # known without a device sync

    def after(self) -> None:
        """Nothing to do: there is no state."""

    def measured(self, metrics: dict[str, float]) -> None:
        """Nothing to do: the rate depends only on the step."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Nothing to load."""


class Given:
    """A torch scheduler, stepped after every training step."""

    def __init__(self, scheduler: LRScheduler) -> None:
        self.scheduler = scheduler

    def before(self, step: int) -> Rate:  # noqa: ARG002
        rate = self.scheduler.optimizer.param_groups[0]["lr"]  # set after the previous step
        return rate.detach().clone() if isinstance(rate, Tensor) else float(rate)

    def after(self) -> None:
        self.scheduler.step()

    def measured(self, metrics: dict[str, float]) -> None:
        """Nothing to do: it depends only on the steps."""

    def state_dict(self) -> dict[str, Any]:
        return self.scheduler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.scheduler.load_state_dict(state)


class OnPlateau(Given):
    """ReduceLROnPlateau, stepped after every evaluation: with the NLL, or with the accuracy if its mode is "max"."""

    def __init__(self, scheduler: ReduceLROnPlateau) -> None:
        super().__init__(scheduler)
        self.plateau = scheduler

    def after(self) -> None:
        """Nothing to do: it depends only on the measurements."""

    def measured(self, metrics: dict[str, float]) -> None:
        self.plateau.step(metrics["acc" if self.plateau.mode == "max" else "nll"])
