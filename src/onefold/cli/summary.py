"""What a run will be, before it begins: the recipe, the data, the network, the passes of a step, the memory."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from onefold.cli.terminal import display
from onefold.data import Source, load, rows
from onefold.engine import build_network
from onefold.engine.device import device_named
from onefold.engine.passes import DIRECTION
from onefold.methods import Method, Perturbing, method_named, perturbation_named
from onefold.recipe import Recipe

# Fitted to the growth of resident memory on a CPU in ten settings, which the estimate then meets within a fifth.
MOMENTARY = 4  # times the largest layer: gradients of its input and output, copies in the order a kernel wants
FRAGMENTS = 1.25


def summary(recipe: Recipe, source: Source, *, student: bool) -> str:
    """Two columns of text."""
    method = method_named(recipe.distill.method if student else "supervised")
    perturbation = perturbation_named(recipe.distill.perturbation if student else "none")
    net = build_network(recipe.network, len(source.classes), source.statistics, source.image_size)
    table = [*rows(source), ("recipe", f"{recipe.name}, seed {recipe.seed}")]
    table.append(("training", f"epochs {recipe.epochs}, batch size {recipe.optim.batch_size}, lr {recipe.optim.lr:g}"))
    table.append(("network", f"{recipe.network}, {sum(p.numel() for p in net.parameters()):,} parameters"))
    if student:
        table.append(("student", f"{method.name} of {recipe.members} teachers, perturbation {perturbation.name}"))
    else:
        table.append(("teachers", f"{recipe.members}"))
    table.append(("a step", passes(method, perturbation, recipe.members)))
    needed = memory(recipe, source, net, method) / 2**20
    table.append(("memory", f"about {max(needed, 1):,.0f} MiB beside torch itself and the data, by an estimate"))
    width = max(len(name) for name, _ in table)
    return "\n".join(f"{name:<{width}}  {text}" for name, text in table)


def source_of(recipe: Recipe) -> Source:
    """The recipe's data."""
    data = recipe.data
    with display() as shown:
        looked = shown.stage(f"looking at {data.source}").count
        return load(
            data.source,
            data.root,
            download=data.download,
            skip_unreadable=data.skip_unreadable,
            progress=lambda done, total: looked(done, total),
        )


def passes(method: Method, perturbation: Perturbing, members: int) -> str:
    """Forward and backward passes of a batch through one network."""
    if not method.needs_teachers:
        return "1 forward and 1 backward pass"
    ours = student_members(method, members)
    direction = DIRECTION.get(perturbation.name, (0, 0, 0, 0))
    teachers = f"teachers {members + direction[0]} forward"
    teachers += f" and {direction[1]} backward" if direction[1] else ""
    return f"{teachers}; student {ours + direction[2]} forward and {ours + direction[3]} backward passes"


def student_members(method: Method, members: int) -> int:
    """How many times a batch goes through the student."""
    return method.student(nn.Linear(2, 2), members, torch.zeros(2, 2)).members


def memory(recipe: Recipe, source: Source, net: nn.Module, method: Method) -> float:
    """Bytes: weights, gradients and momenta of what is trained, the teachers, what a step keeps to go back, and what
    it needs for a moment on the way; on a CPU also what the system's allocator cannot use again."""
    weights = sum(t.nbytes for t in (*net.parameters(), *net.buffers()))
    teachers = recipe.members * weights if method.needs_teachers else 0
    members = student_members(method, recipe.members)
    example = torch.zeros(2, source.channels, *source.image_size) if len(source.image_size) == 2 else features(source)
    share = 0.5 if recipe.precision == "bf16" else 1.0
    saved = saved_bytes(net, example)
    at_once = members * recipe.optim.batch_size / recipe.optim.accumulate / len(example) * share
    kept, largest = sum(saved) * at_once, max(saved, default=0) * at_once
    lost = FRAGMENTS if device_named(recipe.device).type == "cpu" else 1.0
    return lost * (3 * weights + teachers + kept) + MOMENTARY * largest


def features(source: Source) -> Tensor:
    return torch.zeros(2, *source.image_size)


def saved_bytes(net: nn.Module, x: Tensor) -> list[int]:
    """What autograd keeps of a forward pass: the size of each piece of memory, and the weights not at all."""
    weights = {p.untyped_storage().data_ptr() for p in net.parameters()}
    seen: dict[int, int] = {}
    alive: list[Tensor] = []  # an address counts only while nothing else can take it

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
