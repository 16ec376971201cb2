"""Errors in users' networks and in torch: told in one line, naming the argument and a remedy."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from onefold.data import Loader


def told(error: Exception) -> str:
    """An error in one line; torch's compiler wraps errors of what it traces."""
    cause = getattr(error, "inner_exception", error)
    return str(cause).strip().split("\n")[0] or type(cause).__name__


@contextlib.contextmanager
def blaming(name: str, x: Tensor, network: nn.Module) -> Iterator[None]:
    """Turns errors of torch inside into a ValueError about the argument `name`, whose network does not fit inputs x."""
    try:
        yield
    except (RuntimeError, IndexError) as error:  # an embedding raises an IndexError
        advice = f"; {remedy}" if (remedy := of_one_type(x, network)) else ""
        raise ValueError(f"{name}: cannot take inputs {x.dtype} {list(x.shape)}: {told(error)}{advice}") from error


@contextlib.contextmanager
def blaming_types(network: nn.Module, loaders: Mapping[str, Loader]) -> Iterator[None]:
    """Does so only for inputs whose dtype differs from the network's weights; other errors pass unchanged."""
    try:
        yield
    except RuntimeError as error:
        for name, loader in loaders.items():
            for x, _ in loader.batches():
                if remedy := of_one_type(x, network):
                    raise ValueError(
                        f"{name}: expected inputs of the type of the model's weights, got {x.dtype}; {remedy}"
                    ) from error
                break
        raise


def of_one_type(x: Tensor, network: nn.Module) -> str:
    """What to do about inputs whose dtype differs from all weights; empty if some weights match."""
    types = {weight.dtype for weight in network.parameters() if weight.is_floating_point()}
    if not types or x.dtype in types or not x.is_floating_point():
        return ""
    single = x.dtype == torch.float32  # the dtype networks are trained in
    named = " and ".join(sorted(str(each) for each in types))
    return f"the weights are {named}: " + (
        "give the network in float32, network.float()" if single else "give x.float()"
    )
