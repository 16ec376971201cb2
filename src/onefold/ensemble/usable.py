"""Refuses networks that cannot be used as they are given, with what to give instead."""

from __future__ import annotations

import inspect

from torch import nn


def check_not_compiled(name: str, net: nn.Module) -> None:
    """Refuses what torch.compile returns: its class and state dict keys are not the network's."""
    inner = getattr(net, "_orig_mod", None)  # asked this way because importing torch's compiler takes seconds
    if isinstance(inner, nn.Module):
        raise ValueError(
            f"{name}: expected the network inside, got it wrapped by torch.compile; give net._orig_mod: onefold "
            "compiles by itself"
        )


def check_one_input(name: str, net: nn.Module) -> None:
    """Refuses networks whose forward needs more than one tensor."""
    if net._forward_pre_hooks:  # they may fill in more arguments
        return
    try:
        parameters = inspect.signature(net.forward).parameters.values()
    except (TypeError, ValueError):  # has no signature, since it is not written in Python
        return
    needed = [p for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    more = [p.name for n, p in enumerate(needed) if n > 0 or p.kind is p.KEYWORD_ONLY]
    if more:
        raise ValueError(
            f"{name}: expected a network that takes one tensor of inputs, got {type(net).__name__}, whose forward also "
            f"needs {' and '.join(more)}; networks get one tensor per example, so compute masks and the like inside"
        )
