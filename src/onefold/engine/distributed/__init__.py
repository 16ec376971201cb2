"""Training in several processes: the only part of the engine that uses torch.distributed."""

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
