"""Random feature maps that do not depend on their memory format, so that two formats can be compared."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only


class InOrder(TorchDispatchMode):
    """Inside, random numbers for maps in channels-last (dropout, noise) are the ones that contiguous maps would get.

    They are usually drawn in the order of the memory: from the same seed, other numbers in the other format.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in func.tags or not any(map(channels_last, args)):
            return func(*args, **kwargs)
        moved = [arg.contiguous() if channels_last(arg) else arg for arg in args]
        drawn = func(*moved, **kwargs)
        if func._schema.is_mutable:  # such as `bernoulli_`
            for arg, own in zip(args, moved, strict=True):
                if own is not arg:
                    arg.copy_(own)
        given = {id(own): arg for arg, own in zip(args, moved, strict=True)}
        return tree_map_only(Tensor, lambda value: given.get(id(value), back(value)), drawn)


def channels_last(value: object) -> bool:
    if not isinstance(value, Tensor) or value.dim() != 4 or value.is_contiguous():
        return False
    return value.is_contiguous(memory_format=torch.channels_last)


def back(drawn: Tensor) -> Tensor:
    return drawn.contiguous(memory_format=torch.channels_last) if drawn.dim() == 4 else drawn
