"""Compares our steps with plain ones and with the hardware's limit, on the machine this runs on."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from onefold.bench.cases import Case, fresh, our_rounds, pictures, plain_rounds
from onefold.bench.floor import Rates, floor_of, measure_rates
from onefold.bench.memory import forget_peak, peak_bytes
from onefold.bench.timing import Rounds, cleared, finished, in_turn
from onefold.engine.cost.counting import count_forward
from onefold.engine.cost.passes import passes_of
from onefold.engine.device import current, own_randomness
from onefold.engine.keeping.environment import environment, now
from onefold.fast.tf32 import tf32
from onefold.methods import METHODS, PERTURBATIONS

WARM = 3  # warm-up rounds


@dataclass(frozen=True)
class Row:
    """The milliseconds of a whole step, and other numbers about it."""

    network: str
    step: str
    batch: int
    ms: float
    plain_ms: float
    floor_ms: float
    arithmetic_ms: float
    bytes_ms: float
    passes: int  # in forward passes
    tflop: float
    memory_gb: float  # on a GPU of all tensors, else of the process
    start_up_s: float

    @property
    def ratio(self) -> float:
        """How many times faster than the plain version we are."""
        return self.plain_ms / self.ms


@dataclass(frozen=True)
class Table:
    precision: str
    rates: Rates
    rows: tuple[Row, ...]

    def record(self, device: torch.device) -> dict[str, Any]:
        """A record for a file: the rows, with the machine, the date and the versions."""
        return {
            "date": now(),
            "load": os.getloadavg() if hasattr(os, "getloadavg") else None,  # in the last 1, 5 and 15 minutes
            "environment": environment(device) | {"command": ["onefold", *sys.argv[1:]]},
            "precision": self.precision,
            "rates": asdict(self.rates),
            "rows": [asdict(row) | {"ratio": row.ratio} for row in self.rows],
        }


def compare(
    cases: Sequence[Case],
    device: torch.device,
    *,
    steps: int,
    blocks: int = 5,
    told: Callable[[str, int], None] = lambda _label, _done: None,
) -> Iterator[Table]:
    """Times every case; in bf16 on a GPU, in float32 on a CPU. The plain version is in float32, on a GPU with TF32.

    Yields the table so far after each case, so that it is not lost if the next one fails.
    """
    precision = "bf16" if device.type == "cuda" else "float32"
    with own_randomness(device), current(device):
        rates, rows = measure_rates(device, precision), []
        for number, case in enumerate(cases):
            told(f"{case.network} {case.label}", number)
            rows.append(row_of(case, rates, device, steps, blocks))
            yield Table(precision, rates, tuple(rows))


def row_of(case: Case, rates: Rates, device: torch.device, steps: int, blocks: int) -> Row:
    cleared(device)
    data = pictures(case, device)
    forget_peak(device)
    begin = finished(device)
    ours = our_rounds(case, data, device, rates.precision)
    ours(1)
    start_up = finished(device) - begin
    ours(WARM)
    needed = peak_bytes(device)
    theirs = with_tf32(plain_rounds(case, data, device))
    theirs(WARM)
    seconds, plain_seconds = in_turn([(ours, steps), (theirs, max(steps // 4, 1))], device, blocks)
    net = fresh(case)
    forward = count_forward(net, (case.batch, *data.x.shape[1:]))
    passes = passes_of(METHODS[case.method], PERTURBATIONS[case.perturbation], case.members).equivalents * case.runs
    floor = floor_of(forward, passes, case.runs * sum(p.numel() for p in net.parameters()), rates)
    return Row(
        network=case.network,
        step=case.label,
        batch=case.batch,
        ms=1e3 * seconds,
        plain_ms=1e3 * plain_seconds,
        floor_ms=1e3 * floor.seconds,
        arithmetic_ms=1e3 * floor.arithmetic,
        bytes_ms=1e3 * floor.bytes,
        passes=passes,
        tflop=passes * forward.flops / 1e12,
        memory_gb=needed / 1e9,
        start_up_s=start_up,
    )


def with_tf32(rounds: Rounds) -> Rounds:
    """Runs the plain version with TF32 and cuDNN's autotuning, which any good engineer would switch on first."""
    cudnn = torch.backends.cudnn

    def fast(count: int) -> None:
        before = cudnn.benchmark
        cudnn.benchmark = True
        try:
            with tf32(True):
                rounds(count)
        finally:
            cudnn.benchmark = before

    return fast
