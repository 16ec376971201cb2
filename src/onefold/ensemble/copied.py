"""Copies of networks that share nothing with the original."""

from __future__ import annotations

import copy
import types
from collections.abc import Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

Module = TypeVar("Module", bound=nn.Module)


def copied(net: Module) -> Module:
    """A copy that shares nothing with the network.

    Activations stored on the network are copied detached, which deepcopy alone cannot do. A network with an attribute
    that is a function closing over one of its modules is refused: the copy would go on using the original module.
    """
    own = {id(module) for module in net.modules()}
    memo: dict[int, Any] = {}
    for name, module in net.named_modules():
        for attribute, value in attributes(module):
            if isinstance(value, Tensor) and value.grad_fn is not None:
                memo[id(value)] = value.detach().clone()
            if isinstance(value, types.FunctionType) and any(id(held) in own for held in closed_over(value)):
                where = f"{name}.{attribute}" if name else attribute
                raise ValueError(
                    f"net: its attribute '{where}' is a function that closes over a module of the network, and a copy "
                    "would go on using the original; make it a method"
                )
    net = copy.deepcopy(net, memo)
    for module in net.modules():
        if isinstance(module, nn.RNNBase):
            module.flatten_parameters()  # cuDNN wants one contiguous block, which deepcopy splits up
    return net


def shares(copied: nn.Module, net: nn.Module) -> bool:
    """Whether a copy uses memory of the network: a module's `__deepcopy__` may return the module itself."""
    own = set(memory(net))
    return any(place in own for place in memory(copied))


def memory(net: nn.Module) -> Iterator[int]:
    """Identifies the storage of each of the network's tensors."""
    for t in (*net.parameters(), *net.buffers()):
        plain = t.layout is torch.strided and not isinstance(t, (UninitializedBuffer, UninitializedParameter))
        yield t.untyped_storage()._cdata if plain else id(t)


def attributes(module: nn.Module) -> Iterator[tuple[str, object]]:
    """Everything a module holds besides its child modules, one level deep into containers."""
    for name, value in (*vars(module).items(), *module._buffers.items()):
        if name == "_modules":
            continue
        yield name, value
        if isinstance(value, (list, tuple)):
            yield from ((name, entry) for entry in value)
        elif isinstance(value, dict):
            yield from ((name, entry) for entry in value.values())


def closed_over(function: types.FunctionType) -> Iterator[object]:
    yield from function.__defaults__ or ()
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # an empty cell
            continue
