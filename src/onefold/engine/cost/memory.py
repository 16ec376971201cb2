"""An estimate of the memory a step needs."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from onefold.data import Source
from onefold.engine.cost.passes import student_members
from onefold.engine.device import device_named, precision_on
from onefold.methods import Method
from onefold.recipe import Recipe

# Fitted to the growth of resident memory on a CPU in ten settings, which the estimate matches to within a fifth.
MOMENTARY = 4  # times the largest layer: gradients of its input and output, and copies in a kernel's memory format
FRAGMENTS = 1.25
# Fitted to the peaks of sixteen benchmarks on an H200 (WRN28x1, WRN28x4, ResNet-50 and ViT-S, alone and with members,
# batches of 4 to 256; benchmarks/records), which the estimate matches to within 27%. Peaks include the start-up.
WEIGHTS, TEACHERS = 10, 6  # copies of the trained weights, and of each teacher's
MEMBERS = 1.7  # times what a plain network keeps for the same number of images
WORKSPACE = 0.2e9


def memory(recipe: Recipe, source: Source, net: nn.Module, method: Method) -> float:
    """Bytes of memory for a step. On a CPU: weights, gradients and momenta of the student, the teachers, activations
    saved for the backward pass, temporary buffers, and fragmentation. On a GPU: a fit to measurements, which include
    the start-up."""
    device = device_named(recipe.device)
    weights = sum(t.nbytes for t in (*net.parameters(), *net.buffers()))
    teachers = recipe.members * weights if method.needs_teachers else 0
    members = student_members(method, recipe.members)
    example = torch.zeros(2, source.channels, *source.image_size) if len(source.image_size) == 2 else features(source)
    share = 0.5 if precision_on(device, recipe.precision) == "bf16" else 1.0
    saved = saved_bytes(net, example)
    at_once = members * recipe.optim.batch_size / recipe.optim.accumulate / len(example) * share
    kept, largest = sum(saved) * at_once, max(saved, default=0) * at_once
    if device.type == "cuda":
        return WEIGHTS * weights + TEACHERS * teachers + (MEMBERS if members > 1 else 1) * kept + WORKSPACE
    return FRAGMENTS * (3 * weights + teachers + kept) + MOMENTARY * largest


def features(source: Source) -> Tensor:
    return torch.zeros(2, *source.image_size)


def saved_bytes(net: nn.Module, x: Tensor) -> list[int]:
    """The sizes of the storages that autograd saves in a forward pass, except those of the weights."""
    weights = {p.untyped_storage().data_ptr() for p in net.parameters()}
    seen: dict[int, int] = {}
    alive: list[Tensor] = []  # kept alive, so that no address is reused

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            seen[storage.data_ptr()] = storage.nbytes()
            alive.append(tensor)
        return tensor

    state = {name: value.clone() for name, value in net.state_dict().items()}
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        net.train()(x)
    net.load_state_dict(state)
    return list(seen.values())
