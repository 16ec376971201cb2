"""Members picked by an index tensor, whose values nobody looks at."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn
from torch.nn.utils.stateless import _reparametrize_module

from onefold.types import readable


def check_index(index: Tensor, members: int) -> None:
    """Refuses what does not pick members: one dimension, whole numbers from 0 to M - 1, at least one."""
    if not isinstance(index, Tensor) or index.dtype not in (torch.int64, torch.int32):
        kind = index.dtype if isinstance(index, Tensor) else type(index).__name__
        raise ValueError(f"members: expected a tensor of int64 indices, got {kind}")
    if index.dim() != 1 or index.shape[0] == 0:
        raise ValueError(f"members: expected at least one index [n], got shape {list(index.shape)}")
    if readable(index) and not bool(((index >= 0) & (index < members)).all()):
        raise ValueError(f"members: expected indices from 0 to {members - 1}, got {index.tolist()}")


@contextlib.contextmanager
def substituted(net: nn.Module, weights: Mapping[str, Tensor]) -> Iterator[None]:
    """The network with other values for some parameters, for as long as this is open.

    A gradient belongs inside: a network that recomputes its activations (checkpointing) does so in the backward pass.
    """
    with _reparametrize_module(net, dict(weights), tie_weights=True):
        yield
