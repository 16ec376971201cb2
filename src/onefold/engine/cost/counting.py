"""Counts a network's arithmetic and memory traffic from shapes alone."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


def formulas() -> dict[Any, Callable[..., Any]]:
    """Torch's FLOP formulas by operation. CPU attention, for which not every version of torch has a formula, counts
    like the other kinds."""
    from torch.utils.flop_counter import flop_registry  # imported here: it loads Triton, and most runs count nothing

    aten = torch.ops.aten
    like = flop_registry[aten._scaled_dot_product_flash_attention]
    return {aten._scaled_dot_product_flash_attention_for_cpu: like, **flop_registry}


@dataclass(frozen=True)
class Operation:
    """A convolution, a matrix product or an attention operation."""

    name: str
    flops: int  # a multiplication and an addition count as two
    read: int  # elements of inputs and weights
    written: int


@dataclass(frozen=True)
class Forward:
    """One forward pass, operation by operation; elementwise operations are not counted."""

    operations: tuple[Operation, ...]

    @property
    def flops(self) -> int:
        return sum(op.flops for op in self.operations)

    @property
    def moved(self) -> int:
        """Elements read and written if every operation reads its inputs once and writes its output once."""
        return sum(op.read + op.written for op in self.operations)

    @property
    def activations(self) -> int:
        """Elements of all outputs together."""
        return sum(op.written for op in self.operations)


class Counter(TorchDispatchMode):
    """Records every operation below autograd, wherever it is called."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.formulas = formulas()
        self.operations: list[Operation] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        out, packet = func(*args, **kwargs), func._overloadpacket
        if packet in self.formulas:
            flops = int(self.formulas[packet](*args, **kwargs, out_val=out))
            self.operations.append(Operation(str(packet), flops, numbers((args, kwargs)), numbers(first(out))))
        return out


def numbers(tree: Any) -> int:
    return sum(leaf.numel() for leaf in tree_leaves(tree) if isinstance(leaf, Tensor))


def first(out: Any) -> Any:
    """The actual output: attention also returns values for its backward pass."""
    return out[0] if isinstance(out, tuple) else out


def count_forward(net: nn.Module, shape: Sequence[int]) -> Forward:
    """Counts one forward pass for inputs of shape `[B, ...]` in evaluation mode, leaving the network unchanged.

    Nothing is computed, because the tensors are fake. A network that depends on values is run for real.
    """
    device = next((t.device for t in (*net.parameters(), *net.buffers())), torch.device("cpu"))
    counter = Counter()
    with at_rest(net), torch.no_grad():
        try:
            with FakeTensorMode(allow_non_fake_inputs=True), counter:
                net(torch.full(tuple(shape), 0.5, device=device))
        except Exception:  # a network may do anything that fake tensors do not support
            counter = Counter()
            with counter:
                net(torch.full(tuple(shape), 0.5, device=device))
    return Forward(tuple(counter.operations))


@contextlib.contextmanager
def at_rest(net: nn.Module) -> Iterator[None]:
    """Puts the network in evaluation mode inside, without torch's attention fast path, which cannot be counted;
    restores every module's mode on exit."""
    modes = [(module, module.training) for module in net.modules()]
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    net.eval()
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        for module, training in modes:
            module.training = training
