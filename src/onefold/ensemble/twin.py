"""A copy of a module in evaluation mode that shares its parameters and buffers."""

from __future__ import annotations

import copy
from typing import TypeVar

from torch import nn

T = TypeVar("T", bound=nn.Module)


def at_rest(module: T) -> T:
    """A copy in evaluation mode; the original's mode is left alone.

    The copy shares the dictionaries that hold parameters and buffers, so it follows every later change of them: an
    optimizer step, `to(device)`, `load_state_dict`. Switching modes back and forth inside a training step would do the
    same, but not under torch.compile.
    """
    memo = {id(t): t for t in (*module.parameters(), *module.buffers())}
    twin = copy.deepcopy(module, memo)
    for own, shared in zip(twin.modules(), module.modules(), strict=True):
        own._parameters = shared._parameters
        own._buffers = shared._buffers
    return twin.eval()
