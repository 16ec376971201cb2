"""Members picked by an index tensor, without a device sync to read its values."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn
from torch.nn.utils.stateless import _reparametrize_module

from onefold.types import readable


def check_index(index: Tensor, members: int) -> None:
    """Refuses anything but a non-empty one-dimensional tensor of integers from 0 to M - 1."""
    if not isinstance(index, Tensor) or index.dtype not in (torch.int64, torch.int32):
        kind = index.dtype if isinstance(index, Tensor) else type(index).__name__
        raise ValueError(f"members: expected a tensor of int64 indices, got {kind}")
    if index.dim() != 1 or index.shape[0] == 0:
        raise ValueError(f"members: expected at least one index [n], got shape {list(index.shape)}")
    if readable(index) and not bool(((index >= 0) & (index < members)).all()):
        raise ValueError(f"members: expected indices from 0 to {members - 1}, got {index.tolist()}")


@contextlib.contextmanager
def substituted(net: nn.Module, weights: Mapping[str, Tensor]) -> Iterator[None]:
    """Replaces some of the network's parameters while the context is open.

    Compute gradients inside it: a network with activation checkpointing runs its forward again in the backward pass.
    """
    with _reparametrize_module(net, dict(weights), tie_weights=True):
        yield
