"""An exponential moving average of the weights."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from onefold.methods import AnyStudent


class MovingAverage:
    """A second student that follows the first: w' <- d w' + (1 - d) w after every step.

    Running statistics are averaged like the weights; integer buffers (counters) are copied.
    """

    def __init__(self, student: AnyStudent, decay: float) -> None:
        self.student = copy.deepcopy(student)
        self.decay = decay
        pairs = [
            *zip(self.student.parameters(), student.parameters(), strict=True),
            *zip(self.student.buffers(), student.buffers(), strict=True),
        ]
        averaged = [(mean, value) for mean, value in pairs if mean.is_floating_point()]
        self.means: list[Tensor] = [mean for mean, _ in averaged]
        self.values: list[Tensor] = [value for _, value in averaged]
        self.copied = [(mean, value) for mean, value in pairs if not mean.is_floating_point()]

    @torch.no_grad()
    def update(self) -> None:
        torch._foreach_lerp_(self.means, self.values, 1 - self.decay)
        for mean, value in self.copied:
            mean.copy_(value)
