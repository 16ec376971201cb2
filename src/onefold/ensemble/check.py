"""Runs a network on an example to see where each layer's batch lies, and proves a conversion right."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from onefold.ensemble.fold import folded
from onefold.ensemble.layers import kind_of
from onefold.ensemble.rank_one import R, RankOne, S

# The largest relative deviation that rounding explains, far below what one mixed-up member causes.
ROUNDING = {torch.float32: 1e-2, torch.float64: 1e-6}
# What members at factors one may differ from the original by.
SAME = {torch.float32: 1e-5, torch.float64: 1e-10}

DEPENDS = (
    "expected the answer for one example not to depend on the others in the batch, "
    "got members that differ from their subnetworks"
)

Module = TypeVar("Module", bound=nn.Module)


class Disagreement(NamedTuple):
    """A layer that does not keep the members apart; no name where only the network's answer shows it."""

    layer: str
    reason: str


class Output(NamedTuple):
    """What one call of a layer answered, and where its batch lies."""

    layer: str
    batch_dim: int
    values: Tensor


def possible(x: Tensor) -> bool:
    """Whether this is a moment to look at values: not while tracing, capturing or inside a transform."""
    if torch.compiler.is_compiling() or type(x) is not Tensor or x.is_meta or x.shape[0] == 0:
        return False
    if torch._C._functorch.is_functorch_wrapped_tensor(x):
        return False
    return x.device.type != "cuda" or not torch.cuda.is_current_stream_capturing()


def observe(net: nn.Module, example: Tensor) -> tuple[dict[str, str], dict[str, int]]:
    """Runs the network on two and on three examples: the dimension that grows is a layer's batch.

    Returns reasons to leave layers shared, and the batch dimensions of the Linear layers, both by name.
    """
    probe = comparable(net)
    two, three = (input_shapes(probe, examples(example, count)) for count in (2, 3))
    found: dict[str, str] = {}
    dims: dict[str, int] = {}
    for name, calls in two.items():
        layer = probe.get_submodule(name)
        grown = [
            tuple(d for d, (a, b) in enumerate(zip(s, t, strict=False)) if 3 * a == 2 * b > 0)
            for s, t in zip(calls, three[name], strict=False)
        ]
        if not calls:
            found[name] = "it was never called: its weight is read by other code, or not used"
        elif len(calls) != len(three[name]) or len(set(grown)) != 1 or len(grown[0]) > 1:
            found[name] = "where its batch lies cannot be told"
        elif not grown[0]:
            found[name] = "it is called on something that does not depend on the batch"
        elif isinstance(layer, nn.Linear) and grown[0][0] < len(calls[0]) - 1:
            dims[name] = grown[0][0]
        elif isinstance(layer, nn.Linear) or grown[0][0] != usual_batch_dim(layer):
            found[name] = f"its batch lies in dimension {grown[0][0]}"
    return found, dims


def first_disagreement(net: nn.Module, members: int, example: Tensor) -> Disagreement | None:
    """The first layer of a converted network, in the order of calls, at which a member differs from its subnetwork.

    Factors are random, and every converted layer's output is compared: a layer whose contribution is still scaled by
    zero shows nothing in the logits.
    """
    probe = comparable(net)
    draws = torch.Generator().manual_seed(0)
    for factor in factors(probe):
        factor.data.copy_(torch.rand(factor.shape, generator=draws) - 0.5)
    layers = {m.layer_name: m.batch_dim for m in probe.modules() if isinstance(m, RankOne)}
    x = examples(example, 2)
    together = outputs(probe, layers, x.repeat(members, *(1,) * (x.dim() - 1)))
    for m in {0, members - 1}:
        member = folded(probe, [float(i == m) for i in range(members)])
        alone, again = outputs(member, layers, x), outputs(member, layers, x, seed=1)
        if any(not torch.equal(a.values, b.values) for a, b in zip(alone, again, strict=False)):
            return None  # an answer that changes from call to call cannot be compared
        if [output.layer for output in alone] != [output.layer for output in together]:
            return Disagreement("", f"{type(net).__name__}: expected every member to take one path through the layers")
        for whole, part in zip(together, alone, strict=True):
            if deviation(member_of(whole, members, m), part.values) > ROUNDING.get(part.values.dtype, 1e-2):
                if whole.layer:
                    return Disagreement(whole.layer, "the members are not one after another in its batch")
                return Disagreement("", f"{type(net).__name__}: {DEPENDS}")
    return None


def same_as_original(net: nn.Module, members: int, original: nn.Module, example: Tensor) -> None:
    """With factors at one, every member answers as the original network does."""
    probe, plain = comparable(net), comparable(original)
    for factor in factors(probe):
        factor.data.zero_()
    x = examples(example, 2)
    (answer,), (again,) = outputs(plain, {}, x), outputs(plain, {}, x, seed=1)
    if not torch.equal(answer.values, again.values):
        return  # it does not even agree with itself
    (whole,) = outputs(probe, {}, x.repeat(members, *(1,) * (x.dim() - 1)))
    error = max(deviation(member_of(whole, members, m), answer.values) for m in range(members))
    if error > SAME.get(answer.values.dtype, 1e-5):
        raise ValueError(
            f"net: expected members at factors one to answer as {type(original).__name__} does, "
            f"got a relative deviation of {error:.1e}"
        )


def factors(net: nn.Module) -> list[nn.Parameter]:
    ends = (R.format(""), S.format(""))
    return [p for name, p in net.named_parameters() if name.endswith(ends)]


def examples(x: Tensor, count: int) -> Tensor:
    """`count` rows, repeating the ones given where they are too few."""
    if x.dim() == 0 or x.shape[0] == 0:
        raise ValueError(f"example: expected a batch of at least one input, got shape {list(x.shape)}")
    x = x.detach()
    return x.repeat(-(-count // x.shape[0]), *(1,) * (x.dim() - 1))[:count]


def comparable(net: Module) -> Module:
    """A copy in evaluation mode, half precision in float32."""
    net = copy.deepcopy(net).eval()
    half = any(p.dtype in (torch.bfloat16, torch.float16) for p in net.parameters())
    return net.float() if half else net


def run(net: nn.Module, x: Tensor, seed: int = 0) -> Tensor:
    """Logits, without gradients, autocast or a trace in the random state; integer inputs (tokens) as they are."""
    dtype = next((p.dtype for p in net.parameters() if p.is_floating_point()), x.dtype)
    x = x.to(dtype) if x.is_floating_point() else x
    devices = [x.device] if x.device.type == "cuda" else []
    with (
        torch.random.fork_rng(devices=devices),
        torch.no_grad(),
        torch.autocast(x.device.type, enabled=False),
    ):
        torch.manual_seed(seed)
        answer = net(x)
    answer = getattr(answer, "logits", answer)
    if not isinstance(answer, Tensor):
        raise ValueError(
            f"{type(net).__name__}: expected a network that answers logits [B, K], got {type(answer).__name__}"
        )
    return answer


def input_shapes(net: nn.Module, x: Tensor) -> dict[str, list[tuple[int, ...]]]:
    """Shapes of the first tensor that each layer of a convertible kind is called on, call by call."""
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
    """Layers of a convertible kind, without the projections that nn.MultiheadAttention only reads."""
    read = {id(m.out_proj) for m in net.modules() if isinstance(m, nn.MultiheadAttention)}
    for name, module in net.named_modules():
        if kind_of(module) is not None and id(module) not in read:
            yield name, module


def usual_batch_dim(layer: nn.Module) -> int:
    return 1 if isinstance(layer, nn.MultiheadAttention) and not layer.batch_first else 0


def outputs(net: nn.Module, layers: dict[str, int], x: Tensor, seed: int = 0) -> list[Output]:
    """What each of the named layers answers, in the order of calls, and the logits last under no name."""
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
    """Member m's part, or nothing where the batch does not divide."""
    values, dim = output.values, output.batch_dim
    return torch.unflatten(values, dim, (members, -1)).select(dim, m) if values.shape[dim] % members == 0 else None


def deviation(a: Tensor | None, b: Tensor) -> float:
    """Largest difference relative to the largest value; infinite where they cannot be compared."""
    if a is None or a.shape != b.shape:
        return float("inf")
    scale = max(float(b.abs().max()), torch.finfo(b.dtype).tiny)
    error = float((a - b).abs().max()) / scale
    return error if error == error else float("inf")
