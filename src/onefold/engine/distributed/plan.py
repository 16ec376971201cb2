"""How the work is divided among processes, with a message that says why."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import torch

from onefold.engine.distributed.world import World

ROOM = 0.25  # share of the free memory for teachers: the student's activations and momenta need the rest


def by_members(mode: str, members: Sequence[int], world: World) -> tuple[bool, str]:
    """Whether every process trains its own teachers (member-parallel), and a message about it."""
    count, size = len(members), world.size
    if size == 1:
        return False, ""
    if mode == "members" or (mode == "auto" and count >= size):
        why = "as requested" if mode == "members" else "there are enough for all"
        return True, f"{size} processes, member-parallel: {count} teachers, each trained by one process ({why})"
    why = "as requested" if mode == "data" else f"{count} teacher{'s' if count > 1 else ''} left for {size} processes"
    return False, f"{size} processes, data-parallel: all of them train each teacher together ({why})"


def spreads(wanted: str, members: int, needed: int, device: torch.device, world: World) -> tuple[bool, str]:
    """Whether the teachers, which take `needed` bytes together, are spread over the processes, and a message."""
    if world.size == 1:
        return False, ""
    free = min(world.collected(room(device)))
    fit = needed <= ROOM * free
    spread = wanted == "spread" or (wanted == "auto" and not fit)
    compared = f"{needed / 2**20:,.0f} MiB of teachers, {free / 2**20:,.0f} MiB free for each process"
    why = "as requested; " + compared if wanted != "auto" else compared
    held = f"spread, at most {-(-members // world.size)} of {members} in each" if spread else f"all {members} in each"
    return spread, f"{world.size} processes, data-parallel; teachers: {held} ({why})"


def room(device: torch.device) -> int:
    """Roughly how many bytes of memory are free for this process."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 2**62  # unknown on this system
    available = next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), 2**62)
    return available // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
