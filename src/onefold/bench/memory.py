"""Measures peak memory."""

from __future__ import annotations

import contextlib
import resource
import sys
from pathlib import Path

import torch


def forget_peak(device: torch.device) -> None:
    """Resets the peak, so that `peak_bytes` is about what follows."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    with contextlib.suppress(OSError):  # if the system does not allow it, the peak is since the start of the process
        Path("/proc/self/clear_refs").write_text("5")


def peak_bytes(device: torch.device) -> int:
    """Peak memory: on a GPU of all tensors, else of this process."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(most) * (1 if sys.platform == "darwin" else 1024)
