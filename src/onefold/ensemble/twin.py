"""A second view of a module, in evaluation mode, over the same parameters and buffers."""

from __future__ import annotations

import copy
from typing import TypeVar

from torch import nn

T = TypeVar("T", bound=nn.Module)


def at_rest(module: T) -> T:
    """The module with its running statistics and without dropout; the original's modes are left alone.

    The copy shares the dictionaries that hold parameters and buffers, so it follows every later change of
    them: an optimizer's step, `to(device)`, `load_state_dict`. Switching modes back and forth inside a training step
    would do the same, but not inside a compiled one.
    """
    memo = {id(t): t for t in (*module.parameters(), *module.buffers())}
    twin = copy.deepcopy(module, memo)
    for own, shared in zip(twin.modules(), module.modules(), strict=True):
        own._parameters = shared._parameters
        own._buffers = shared._buffers
    return twin.eval()
