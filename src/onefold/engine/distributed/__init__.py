"""Several processes as one: the only place that knows torch.distributed."""

from onefold.engine.distributed.failing import Abandoned, Lost
from onefold.engine.distributed.launch import device_here, join_the_others, launched, may_speak, rank_here, world_here
from onefold.engine.distributed.world import ALONE, World

__all__ = [
    "ALONE",
    "Abandoned",
    "Lost",
    "World",
    "device_here",
    "join_the_others",
    "launched",
    "may_speak",
    "rank_here",
    "world_here",
]
