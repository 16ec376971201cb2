"""The least time a step could take: its arithmetic and its bytes at the rates this machine reaches."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch

from onefold.bench.timing import repeated, round_seconds
from onefold.engine.cost.counting import Forward

BYTES = {"bf16": 2, "float32": 4}
UPDATE = 5 * 4  # bytes a parameter: weight, gradient and momentum are read, weight and momentum written


@dataclass(frozen=True)
class Rates:
    """What a large product and a large copy reach."""

    precision: str
    flops: float  # a second
    bytes: float  # a second, read and written


@dataclass(frozen=True)
class Floor:
    """Seconds of one step."""

    arithmetic: float
    bytes: float
    seconds: float  # operation by operation whichever takes longer, and the update of the weights


def measure_rates(device: torch.device, precision: str) -> Rates:
    """A second or so: a square product and a copy that no cache holds, each as fast as it was at its best."""
    cuda = device.type == "cuda"
    best = partial(round_seconds, device=device, blocks=5, of=min)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    side, size = (8192, 1 << 30) if cuda else (1024, 1 << 27)
    a, b = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
    product = best(repeated(lambda: torch.mm(a, b)), count=20 if cuda else 3, warm=3)
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    copy = best(repeated(lambda: target.copy_(source)), count=20 if cuda else 2, warm=2)
    return Rates(precision, 2 * side**3 / product, 2 * size / copy)


def floor_of(forward: Forward, equivalents: int, parameters: int, rates: Rates) -> Floor:
    """`equivalents` passes that cost what `forward` does, and the update of `parameters` numbers.

    A gradient moves what the forward pass moves: that of the input reads the output's gradient and writes the input's,
    that of the weights reads both. What a cache keeps between operations, and what fusing two of them would save, is
    not counted, so that a network whose activations fit into a cache may be faster than this.
    """
    size = BYTES[rates.precision]
    arithmetic = [op.flops / rates.flops for op in forward.operations]
    moving = [size * (op.read + op.written) / rates.bytes for op in forward.operations]
    longer = sum(max(pair) for pair in zip(arithmetic, moving, strict=True))
    update = UPDATE * parameters / rates.bytes
    return Floor(equivalents * sum(arithmetic), equivalents * sum(moving) + update, equivalents * longer + update)
