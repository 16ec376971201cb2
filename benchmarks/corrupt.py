"""Measures how long a full set of corruptions takes, 19 at 5 severities: python benchmarks/corrupt.py

Uses 10,000 images of CIFAR's size. Prints wall-clock seconds and processor seconds (user and system, all threads) for
each corruption, over all severities. If other programs use the cores, processor time divided by the number of cores is
what the clock would show without them. The full set should take less than six minutes on two cores.
"""

from __future__ import annotations

import argparse
import os
import time

import torch
from torch import Tensor

from onefold.data.corrupt import CORRUPTIONS, EXTRA, corrupt

MOST = 360.0
CORES = 2


def pictures(count: int, side: int) -> Tensor:
    """Smooth colours with some noise: for a JPEG encoder, harder than plain surfaces and easier than pure noise."""
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(count, 3, 4, 4, generator=generator)
    smooth = torch.nn.functional.interpolate(coarse, (side, side), mode="bilinear")
    noise = 0.05 * torch.randn(count, 3, side, side, generator=generator)
    return ((smooth + noise) * 255).clamp(0, 255).to(torch.uint8)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--side", type=int, default=32)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", nargs="*", default=(*CORRUPTIONS, *EXTRA))
    arguments = parser.parse_args()

    images = pictures(arguments.images, arguments.side).to(arguments.device)
    sizes = f"{arguments.images} images of {arguments.side} x {arguments.side} on {arguments.device}"
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {os.cpu_count()} cores, {sizes}")
    print(f"{'corruption':20}{'seconds':>10}{'processor':>11}   by severity")
    clock = processor = 0.0
    for name in arguments.only:
        taken, used = [], time.process_time()
        for severity in range(1, 6):
            start = time.perf_counter()
            corrupt(images, name, severity, seed=0)
            if images.is_cuda:
                torch.cuda.synchronize()
            taken.append(time.perf_counter() - start)
        used = time.process_time() - used
        print(f"{name:20}{sum(taken):10.2f}{used:11.2f}   {' '.join(f'{part:.2f}' for part in taken)}", flush=True)
        clock, processor = clock + sum(taken), processor + used
    shared = processor / CORES
    print(f"{'all':20}{clock:10.2f}{processor:11.2f}   processor time over {CORES} cores: {shared:.1f} s")
    if (arguments.images, arguments.side, len(arguments.only)) != (10_000, 32, len(CORRUPTIONS) + len(EXTRA)):
        return 0
    within = min(clock, shared) < MOST
    print(f"{'less' if within else 'MORE'} than {MOST:.0f} s")
    return 0 if within else 1


if __name__ == "__main__":
    raise SystemExit(main())
