"""The state of every streaming metric: sums on a device that can be moved, stored, merged and all-reduced."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Self

import torch
import torch.distributed as dist
from torch import Tensor


def sum_dtype(device: torch.device) -> torch.dtype:
    """float64, or float32 on MPS, which has no float64."""
    return torch.float32 if device.type == "mps" else torch.float64


class Accumulator(abc.ABC):
    """Named tensors that hold only sums and counts, so that adding two states gives that of the combined data.

    The state starts on `device` (by default the CPU) and moves to the device of the batches it is updated with.
    """

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], device: torch.device | str | None) -> None:
        place = torch.device("cpu" if device is None else device)
        dtype = sum_dtype(place)
        # Ordinary tensors even if created in inference mode: they may be updated outside it.
        with torch.inference_mode(False):
            self._sums = {name: torch.zeros(s, dtype=dtype, device=place) for name, s in shapes.items()}

    @property
    def device(self) -> torch.device:
        """The device of the state."""
        return next(iter(self._sums.values())).device

    def to(self, device: torch.device | str) -> Self:
        """Moves the state to a device."""
        place = torch.device(device)
        with torch.inference_mode(False):
            self._sums = {name: s.to(place, sum_dtype(place)) for name, s in self._sums.items()}
        return self

    def reset(self) -> Self:
        """Sets the state to zero."""
        for sums in self._sums.values():
            sums.zero_()
        return self

    def state(self) -> dict[str, Tensor]:
        """A copy of the state, to be stored, sent, or added to another's."""
        return {name: sums.clone() for name, sums in self._sums.items()}

    def load_state(self, state: Mapping[str, Tensor]) -> Self:
        """Replaces the state by one returned from `state()`."""
        self._check_alike("state", state)
        for name, sums in self._sums.items():
            sums.copy_(state[name])
        return self

    def merge(self, other: Self) -> Self:
        """Adds the state of `other`, which is left unchanged."""
        if type(other) is not type(self):
            raise ValueError(f"other: expected a {type(self).__name__}, got a {type(other).__name__}")
        self._check_alike("other", other._sums)
        for name, sums in self._sums.items():
            sums.add_(other._sums[name].to(sums.device, sums.dtype))
        return self

    def all_reduce(self, group: dist.ProcessGroup | None = None) -> Self:
        """Merges the states of all processes, in place: call it once, after the last update.

        Does nothing if `torch.distributed` is not in use. A process that may see no batch at all must be given its
        `device` beforehand if the group's backend supports only one kind of device.
        """
        if dist.is_available() and dist.is_initialized():
            for sums in self._sums.values():
                dist.all_reduce(sums, op=dist.ReduceOp.SUM, group=group)
        return self

    @abc.abstractmethod
    def compute(self) -> dict[str, float]:
        """The metrics of everything seen so far; synchronizes with the device."""

    def _follow(self, batch: Tensor) -> None:
        if batch.device != self.device:
            self.to(batch.device)

    def _check_alike(self, name: str, state: Mapping[str, Tensor]) -> None:
        mine = {key: list(sums.shape) for key, sums in self._sums.items()}
        theirs = {key: list(sums.shape) for key, sums in state.items()}
        if mine != theirs:
            raise ValueError(f"{name}: expected sums of shapes {mine}, got {theirs}; make both with the same arguments")
