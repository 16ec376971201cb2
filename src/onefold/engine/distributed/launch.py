"""The world this process was launched into: by torchrun, by anything else that sets its variables, or on its own."""

from __future__ import annotations

import atexit
import itertools
import os
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from onefold.engine.device import device_named
from onefold.engine.distributed.failing import claim, watch
from onefold.engine.distributed.processes import Processes
from onefold.engine.distributed.world import ALONE, World

VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
JOINED: list[Processes] = []
TIMES = itertools.count()


def launched(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this process was launched as one of several."""
    return all(name in environment for name in VARIABLES)


def world_here() -> World:
    """Joins the other processes, once; `ALONE` if there are none."""
    if JOINED and not (dist.is_initialized() and JOINED[0].store is the_groups_store()):
        JOINED.clear()  # the user has destroyed the group since
    if not JOINED and dist.is_available() and (dist.is_initialized() or launched()):
        JOINED.append(joined())
    return JOINED[0] if JOINED else ALONE


def rank_here() -> int:
    """This process's rank, without joining the others, which would block until they join, too."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank()
    number = os.environ.get("RANK", "")
    return int(number) if number.isdecimal() else 0


def joined() -> Processes:
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    if dist.is_initialized():  # by the user, possibly with a backend for GPUs only
        host: Any = dist.new_group(backend="gloo")
        return Processes(dist.get_rank(), dist.get_world_size(), local_rank, the_groups_store(), host)
    # Imported before there is a group, since its functions would keep it as a default argument: torch's compiler, which
    # optimizers load, imports them. The group's threads would then outlive Python, and abort it now and then.
    import torch.distributed.nn.functional

    found, rank, size = next(rendezvous("env://"))
    # The store outlives restarts by torchrun, and groups: a prefix keeps this one from reading what others left in it.
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    store = PrefixStore(f"onefold/{size}/{attempt}/{next(TIMES)}", found)
    # Both backends: gloo for CPU tensors and objects, NCCL (which is initialized lazily) for GPU tensors.
    both = torch.cuda.is_available() and dist.is_nccl_available()
    dist.init_process_group("cpu:gloo,cuda:nccl" if both else "gloo", store=store, rank=rank, world_size=size)
    atexit.register(leave)
    return Processes(rank, size, local_rank, the_groups_store(), None)


def the_groups_store() -> Store:
    return dist.distributed_c10d._get_default_store()


def join_the_others() -> int:
    """Joins the other processes, sets up this one to end when another fails, and returns its rank."""
    world = world_here()
    if isinstance(world, Processes):
        watch(world.store)
    return world.rank


def may_speak(code: int, end_others: bool) -> bool:
    """Whether this process is the one to report why it ends; tells the others to end with this exit code."""
    if not JOINED:
        return rank_here() == 0
    return claim(JOINED[0].store, code, end_others)


def leave() -> None:
    """Destroys the process group cleanly."""
    JOINED.clear()
    if dist.is_initialized():
        dist.destroy_process_group()


def device_here(name: str | torch.device, world: World) -> torch.device:
    """The device with this name; each of several processes on a machine gets its own GPU."""
    device = device_named(name)
    if device.type != "cuda" or world is ALONE:
        return device
    index: int | None = device.index  # torch's type hint omits None
    if index is not None and world.size > 1:
        raise ValueError(f"device: expected 'cuda' for {world.size} processes, one GPU each, got '{device}'")
    here = torch.cuda.device_count()
    if index is None and world.local_rank >= here:
        raise ValueError(
            f"device: expected a GPU for each process of this machine, got process {world.local_rank + 1} and "
            f"{here} GPU{'s' if here > 1 else ''}; start at most {here} with --nproc-per-node"
        )
    device = torch.device("cuda", world.local_rank if index is None else index)
    torch.cuda.set_device(device)
    return device
