"""The losses of the last steps, buffered on the device and read now and then; the error for a non-finite one."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from onefold.engine.optim.schedule import Rate


class Diverged(RuntimeError):
    """The loss, the weights or the outputs became NaN or infinite."""


class Losses:
    """A buffer of the losses and learning rates since the last log record, so that no step syncs with the device."""

    def __init__(self, size: int, device: torch.device) -> None:
        self.values = torch.zeros(size, device=device)
        self.rates: list[Rate] = []

    def __len__(self) -> int:
        return len(self.rates)

    def append(self, loss: Tensor, rate: Rate) -> None:
        self.values[len(self.rates)].copy_(loss)
        self.rates.append(rate)

    def read(self) -> list[float]:
        """The buffered losses; syncs with the device."""
        read: list[float] = self.values[: len(self.rates)].tolist()
        return read

    def clear(self) -> None:
        self.rates.clear()

    def state_dict(self) -> dict[str, list[float]]:
        return {"values": self.read(), "rates": [float(rate) for rate in self.rates]}

    def load_state_dict(self, state: dict[str, list[float]]) -> None:
        self.clear()
        for value, rate in zip(state["values"], state["rates"], strict=True):
            self.append(torch.tensor(value), rate)


def check_finite(losses: Losses, step: int, last: Callable[[], Path | None]) -> list[float]:
    """The buffered losses up to `step`; raises `Diverged` for the first non-finite one. `last` returns the last good
    checkpoint, for the message."""
    values = losses.read()
    for offset, (value, rate) in enumerate(zip(values, losses.rates, strict=True)):
        if not math.isfinite(value):
            raise diverged(step - len(values) + 1 + offset, f"the loss is {value}", float(rate), last())
    return values


def weights_finite(module: torch.nn.Module) -> bool:
    """Whether all parameters and buffers are finite; syncs with the device."""
    tensors = [t for t in (*module.parameters(), *module.buffers()) if t.is_floating_point() and t.numel()]
    if not tensors:
        return True
    if len({(t.device, t.dtype) for t in tensors}) == 1 and tensors[0].is_cuda:  # all in a few kernels
        return bool(torch.stack(torch._foreach_norm(tensors, math.inf)).isfinite().all())
    return all(torch.stack([t.isfinite().all() for t in tensors]).tolist())


def diverged(step: int, what: str, rate: float, last: Path | None) -> Diverged:
    kept = f"the last good checkpoint is {last}" if last is not None else "there is no checkpoint yet"
    where = "" if last is None else ", in another folder"
    # The loss is tau^2 times a cross-entropy, and weights are multiplied by factors: without normalisation layers, a
    # learning rate low enough not to diverge often learns too little.
    return Diverged(
        f"step {step}: {what} (learning rate {rate:.3g}); {kept}. "
        "Clip the gradient (clip=1.0, on the command line --optim.clip 1), which networks without BatchNorm may need; "
        f"if that is not enough, lower the learning rate or warm up longer{where}"
    )
