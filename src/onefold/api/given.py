"""Converts arguments to what the engine takes, and refuses those that make no sense."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.utils.data import DataLoader

from onefold.data import Arrays, Augmentation, CropFlip, Split
from onefold.data.examples import first_dtype
from onefold.engine.distributed import World
from onefold.engine.distributed.plan import spreads
from onefold.engine.distributed.processes import Processes
from onefold.engine.distributed.spread import SpreadTeachers, own_teachers
from onefold.ensemble import Teachers
from onefold.methods import Method
from onefold.recipe import OptimRecipe


def given_teachers(teachers: Teachers | Sequence[nn.Module] | nn.ModuleList | None, method: Method) -> Teachers | None:
    """The teachers, if the method uses any."""
    if not method.needs_teachers:
        if teachers is not None:
            raise ValueError(
                f"teachers: expected None for '{method.name}', which asks none, got {type(teachers).__name__}; give "
                "None, or a method that learns from them, such as 'latentbe'"
            )
        return None
    if teachers is None:
        raise ValueError(f"teachers: '{method.name}' needs them, got None; give trained networks, or onefold.Teachers")
    if (found := as_teachers(teachers)) is None:
        raise ValueError(f"teachers: expected Teachers or a list of networks, got {type(teachers).__name__}")
    return found


def as_teachers(networks: object) -> Teachers | None:
    """A list of networks as `Teachers`; None for anything else."""
    if isinstance(networks, Teachers):
        return networks
    if isinstance(networks, str) or not isinstance(networks, Sequence | nn.ModuleList):
        return None
    return Teachers(list(networks))


def placed_teachers(
    teachers: Teachers | None, spread: bool | None, device: torch.device, world: World
) -> Teachers | SpreadTeachers | None:
    """The teachers, or only those that this process should hold."""
    if teachers is None or not isinstance(world, Processes):
        return teachers
    wanted = "auto" if spread is None else "spread" if spread else "replicated"
    needed = sum(value.nbytes for value in teachers.state_dict().values())
    if not spreads(wanted, teachers.members, needed, device, world)[0]:
        return teachers
    own = own_teachers(teachers.members, world.rank, world.size)
    networks = [network for m, network in enumerate(teachers.networks) if m in own]
    return SpreadTeachers(networks, teachers.members, world)


def batch_size_for(train: Split, given: int | None, world: World) -> int:
    """The batch size over all processes; a `DataLoader` makes its own batches in each of them."""
    own = train.batch_size if isinstance(train, DataLoader) else None
    if own is None:
        return OptimRecipe.batch_size if given is None else given
    if given not in (None, own * world.size):
        raise ValueError(
            f"batch_size: expected none beside a DataLoader, which has batches of {own}, got {given}; leave it out, or "
            "give the Dataset instead of the DataLoader"
        )
    return own * world.size


def check_crops(crops: Augmentation, train: Split) -> None:
    """Refuses crops that would not happen: `CropFlip` only crops uint8 images."""
    if isinstance(train, DataLoader) or not (isinstance(train, Arrays) or isinstance(crops, CropFlip)):
        return
    found = first_dtype(train)
    if found not in (None, torch.uint8):
        raise ValueError(
            f"augment: expected uint8 images to crop and flip, got {found}; give uint8, or a Dataset with transforms "
            "of its own"
        )
