"""The arithmetic of a network and the numbers it moves, counted from shapes alone."""

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
    """What operations cost, by their names. Attention on a CPU, which not every version of torch has a formula for,
    counts like the others."""
    from torch.utils.flop_counter import flop_registry  # loads Triton, and most runs count nothing

    aten = torch.ops.aten
    like = flop_registry[aten._scaled_dot_product_flash_attention]
    return {aten._scaled_dot_product_flash_attention_for_cpu: like, **flop_registry}


@dataclass(frozen=True)
class Operation:
    """A convolution, a matrix product or an attention."""

    name: str
    flops: int  # a multiplication and an addition are two
    read: int  # numbers: inputs and weights
    written: int


@dataclass(frozen=True)
class Forward:
    """One forward pass, operation by operation; what is done between them for each number alone is not counted."""

    operations: tuple[Operation, ...]

    @property
    def flops(self) -> int:
        return sum(op.flops for op in self.operations)

    @property
    def moved(self) -> int:
        """Numbers read and written where every operation reads its inputs and writes its output once."""
        return sum(op.read + op.written for op in self.operations)

    @property
    def activations(self) -> int:
        """Numbers in all outputs together."""
        return sum(op.written for op in self.operations)


class Counter(TorchDispatchMode):
    """Sees every operation below autograd, whoever calls it."""

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
    """The answer: attention also returns what its backward pass wants to know."""
    return out[0] if isinstance(out, tuple) else out


def count_forward(net: nn.Module, shape: Sequence[int]) -> Forward:
    """One forward pass for inputs of a shape `[B, ...]`, in evaluation mode and without a trace in the network.

    Nothing is computed: the tensors are fake. A network that wants to see values is asked in earnest.
    """
    device = next((t.device for t in (*net.parameters(), *net.buffers())), torch.device("cpu"))
    counter = Counter()
    with at_rest(net), torch.no_grad():
        try:
            with FakeTensorMode(allow_non_fake_inputs=True), counter:
                net(torch.full(tuple(shape), 0.5, device=device))
        except Exception:  # whatever it does that cannot be done without values
            counter = Counter()
            with counter:
                net(torch.full(tuple(shape), 0.5, device=device))
    return Forward(tuple(counter.operations))


@contextlib.contextmanager
def at_rest(net: nn.Module) -> Iterator[None]:
    """In evaluation mode inside, each module as before outside; attention in parts that can be counted."""
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
