"""A lower bound on the time of a step: its FLOPs and its bytes, at the rates that this machine reaches."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch

from onefold.bench.timing import repeated, round_seconds
from onefold.engine.cost.counting import Forward

BYTES = {"bf16": 2, "float32": 4}
UPDATE = 5 * 4  # bytes per parameter: weight, gradient and momentum are read, weight and momentum written


@dataclass(frozen=True)
class Rates:
    """The rates of a large matrix product and a large copy."""

    precision: str
    flops: float  # per second
    bytes: float  # per second, read plus written


@dataclass(frozen=True)
class Floor:
    """Seconds of one step."""

    arithmetic: float
    bytes: float
    seconds: float  # for each operation, the longer of the two; plus the update of the weights


def measure_rates(device: torch.device, precision: str) -> Rates:
    """The best rates of a square matrix product and of a copy that exceeds all caches; takes a second or so."""
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
    """The floor for `equivalents` passes, each with the cost of `forward`, and the update of `parameters` numbers.

    Computing a gradient moves as many bytes as the forward pass: the gradient of the input reads that of the output and
    writes its own; the gradient of the weights reads two tensors of these sizes. Savings from caches between
    operations, and from fusing operations, are not considered, so a network whose activations fit into a cache may be
    faster than this.
    """
    size = BYTES[rates.precision]
    arithmetic = [op.flops / rates.flops for op in forward.operations]
    moving = [size * (op.read + op.written) / rates.bytes for op in forward.operations]
    longer = sum(max(pair) for pair in zip(arithmetic, moving, strict=True))
    update = UPDATE * parameters / rates.bytes
    return Floor(equivalents * sum(arithmetic), equivalents * sum(moving) + update, equivalents * longer + update)
