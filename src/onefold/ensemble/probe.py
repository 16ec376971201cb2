"""Copies of a network that are run on examples, to see the inputs and outputs of its layers and to compare them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from onefold.ensemble import fast_path
from onefold.ensemble.copied import copied
from onefold.ensemble.layers import kind_of
from onefold.types import logits_in

# The largest relative deviation that rounding can explain; mixing up members causes far more.
ROUNDING = {torch.float32: 1e-2, torch.float64: 1e-6}

Module = TypeVar("Module", bound=nn.Module)


class Output(NamedTuple):
    """The output of one call of a layer, and its batch dimension."""

    layer: str
    batch_dim: int
    values: Tensor


def comparable(net: Module, dtype: torch.dtype | None = None) -> Module:
    """A copy in evaluation mode, without torch's transformer fast path; in `dtype`, or in float32 instead of half."""
    net = copied(net).eval()
    fast_path.turn_off(net)
    half = any(p.dtype in (torch.bfloat16, torch.float16) for p in net.parameters())
    return net.to(dtype) if dtype is not None else net.float() if half else net


def shuffled(net: Module, seed: int) -> Module:
    """A copy with the values of each parameter shuffled."""
    net = copied(net)
    draws = torch.Generator().manual_seed(seed)
    for parameter in net.parameters():
        order = torch.randperm(parameter.numel(), generator=draws).to(parameter.device)
        parameter.data.copy_(parameter.data.flatten()[order].reshape(parameter.shape))
    return net


def examples(x: Tensor, count: int) -> Tensor:
    """`count` rows of x, repeated if there are too few."""
    if x.dim() == 0 or x.shape[0] == 0:
        raise ValueError(f"example: expected a batch of at least one input, got shape {list(x.shape)}")
    x = x.detach()
    return tiled(x, -(-count // x.shape[0]))[:count]


def tiled(x: Tensor, times: int) -> Tensor:
    return x.repeat(times, *(1,) * (x.dim() - 1))


def other_values(x: Tensor, seed: int) -> Tensor:
    """Inputs of the same kind: scaled floats, or other choices of the same rows of tokens. A table's columns of whole
    numbers keep their values, which may be the indices of an embedding."""
    draws = torch.Generator().manual_seed(seed)
    if not x.is_floating_point():
        return x[torch.randint(len(x), (len(x),), generator=draws).to(x.device)]
    scale = (0.5 + torch.rand(x.shape, generator=draws)).to(x)
    return x.flip(0) * torch.where((x == x.round()).all(0), 1, scale)


def run(net: nn.Module, x: Tensor, seed: int = 0) -> Tensor:
    """Logits without gradients or autocast, leaving the random state alone; integer inputs (tokens) are not cast."""
    dtype = next((p.dtype for p in net.parameters() if p.is_floating_point()), x.dtype)
    x = x.to(dtype) if x.is_floating_point() else x
    devices = [x.device] if x.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), torch.no_grad(), torch.autocast(x.device.type, enabled=False):
        torch.manual_seed(seed)
        answer = logits_in(net(x))
    if not isinstance(answer, Tensor):
        raise ValueError(
            f"{type(net).__name__}: expected a network that answers logits [B, K], got {type(answer).__name__}"
        )
    return answer


def input_shapes(net: nn.Module, x: Tensor) -> dict[str, list[tuple[int, ...]]]:
    """For each layer of a convertible kind, the shape of its first tensor argument in each call."""
    seen: dict[str, list[tuple[int, ...]]] = {}
    with contextlib.ExitStack() as hooks:
        for name, layer in called_layers(net):
            calls = seen.setdefault(name, [])

            def record(_: nn.Module, args: Any, kwargs: Any, calls: list[tuple[int, ...]] = calls) -> None:
                first = next((a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)), None)
                calls.append(() if first is None else tuple(first.shape))

            hooks.callback(layer.register_forward_pre_hook(record, with_kwargs=True).remove)
        run(net, x)
    return seen


def called_layers(net: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Layers of a convertible kind, except nn.MultiheadAttention's output projections, whose weights it only reads."""
    read = {id(m.out_proj) for m in net.modules() if isinstance(m, nn.MultiheadAttention)}
    for name, module in net.named_modules():
        if kind_of(module) is not None and id(module) not in read:
            yield name, module


def usual_batch_dim(layer: nn.Module) -> int:
    return 1 if isinstance(layer, nn.MultiheadAttention) and not layer.batch_first else 0


def outputs(net: nn.Module, layers: dict[str, int], x: Tensor, seed: int = 0) -> list[Output]:
    """The outputs of the named layers in call order, and last, with an empty name, the logits."""
    record: list[Output] = []
    with contextlib.ExitStack() as hooks:
        for name, dim in layers.items():

            def keep(layer: nn.Module, _: Any, output: Any, name: str = name, dim: int = dim) -> None:
                values = output[0] if isinstance(output, tuple) else output
                record.append(Output(name, dim or usual_batch_dim(layer), values.clone()))

            hooks.callback(net.get_submodule(name).register_forward_hook(keep).remove)
        logits = run(net, x, seed)
    return [*record, Output("", 0, logits)]


def member_of(output: Output, members: int, m: int) -> Tensor | None:
    """Member m's part, or None if the batch is not divisible by the number of members."""
    values, dim = output.values, output.batch_dim
    return torch.unflatten(values, dim, (members, -1)).select(dim, m) if values.shape[dim] % members == 0 else None


def same(a: Output, b: Output) -> bool:
    """Bitwise equality, with NaN equal to NaN."""
    return a.values.shape == b.values.shape and torch.equal(a.values.nan_to_num(), b.values.nan_to_num())


def agree(a: Tensor | None, b: Tensor) -> bool:
    return deviation(a, b) <= ROUNDING.get(b.dtype, 1e-2)


def deviation(a: Tensor | None, b: Tensor) -> float:
    """Largest difference relative to the largest value; infinite if the shapes differ or the result is NaN."""
    if a is None or a.shape != b.shape:
        return float("inf")
    if b.numel() == 0:
        return 0.0
    scale = max(float(b.abs().max()), torch.finfo(b.dtype).tiny)
    error = float((a - b).abs().max()) / scale
    return error if error == error else float("inf")
