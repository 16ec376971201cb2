"""Measures the cost of members on this machine.

    python benchmarks/student.py

1. Forward + backward pass of a batch-ensemble WRN28x1 (M = 4, B = 32), relative to the plain network with batch size
   4B = 128: should be at most 1.15.
2. Converting a ViT-B, and collapsing it again: should take under 2 s each.
"""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable

import timm
import torch
from torch import nn

from onefold import batch_ensemble, collapse
from onefold.models import wrn28

MEMBERS, BATCH, ROUNDS, BLOCK = 4, 32, 6, 6


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def forward_backward(net: nn.Module, batch: int) -> Callable[[], None]:
    x = torch.rand(batch, 3, 32, 32)

    def run() -> None:
        net.zero_grad(set_to_none=True)
        net(x).square().mean().backward()

    return run


def ratio_of_steps() -> dict[str, float]:
    torch.manual_seed(0)
    net = wrn28(1, 10)
    student = batch_ensemble(net, MEMBERS)
    plain, ensemble = forward_backward(net, MEMBERS * BATCH), forward_backward(student, BATCH)
    for run in (plain, ensemble):
        run()
    # Alternate blocks of both, so that other load affects them equally. The first step of a block, which finds the
    # allocator's memory as the other left it, is not counted.
    pairs = []
    for _ in range(ROUNDS):
        blocks = [[seconds(run) for _ in range(BLOCK)][1:] for run in (plain, ensemble)]
        pairs += list(zip(*blocks, strict=True))
    ratios = sorted(b / a for a, b in pairs)
    return {
        "ratio": statistics.median(b for _, b in pairs) / statistics.median(a for a, _ in pairs),
        "median of ratios": statistics.median(ratios),
        "smallest": ratios[0],
        "largest": ratios[-1],
    }


def conversion() -> dict[str, float]:
    net = timm.create_model("vit_base_patch16_224", num_classes=1000)
    start = time.perf_counter()
    student = batch_ensemble(net, MEMBERS)
    converted = time.perf_counter()
    collapse(student)
    return {"convert": converted - start, "collapse": time.perf_counter() - converted}


if __name__ == "__main__":
    result = {
        "machine": f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads",
        "torch": torch.__version__,
        "WRN28x1 student over plain, forward + backward": ratio_of_steps(),
        "ViT-B, seconds": conversion(),
    }
    print(json.dumps(result, indent=1))
