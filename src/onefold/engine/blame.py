"""What torch says where inputs and a network do not fit, told of what was given and with what to do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from onefold.data import Loader


@contextlib.contextmanager
def blaming(name: str, x: Tensor, network: nn.Module) -> Iterator[None]:
    """What torch says about inputs that do not fit a network, as a mistake in what was given."""
    try:
        yield
    except RuntimeError as error:
        reason = str(error).split("\n")[0]
        advice = f"; {remedy}" if (remedy := of_one_type(x, network)) else ""
        raise ValueError(
            f"{name}: expected networks for inputs {x.dtype} {list(x.shape)}, got: {reason}{advice}"
        ) from error


@contextlib.contextmanager
def blaming_types(network: nn.Module, loaders: Mapping[str, Loader]) -> Iterator[None]:
    """The same of inputs whose numbers are of another type than the network's, and of nothing else."""
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
    """What to do about inputs of another type than all weights; empty where they are of one."""
    types = {weight.dtype for weight in network.parameters() if weight.is_floating_point()}
    if not types or x.dtype in types or not x.is_floating_point():
        return ""
    single = x.dtype == torch.float32  # in which networks are trained
    named = " and ".join(sorted(str(each) for each in types))
    return f"the weights are {named}: " + (
        "give the network in float32, network.float()" if single else "give x.float()"
    )
