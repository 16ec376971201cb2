"""What a run will be, before it begins: the recipe, the data, the network, the passes of a step, the memory."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from onefold.cli.terminal import display
from onefold.data import Source, load, rows
from onefold.engine import build_network
from onefold.methods import Method, Perturbing, method_named, perturbation_named
from onefold.recipe import Recipe

# Forward and backward passes that finding the direction takes, of teachers and of student members.
DIRECTION = {"ods": (1, 1, 0, 0), "confods": (1, 1, 0, 0), "tdiv": (2, 1, 0, 0), "tdiv-sdiv": (2, 1, 2, 1)}


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
    table.append(("memory", f"about {max(needed, 1):,.0f} MiB beside the data, by an estimate, on {recipe.device}"))
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
    """Bytes: weights, gradients and momenta of what is trained, the teachers, and what a step keeps to go back."""
    weights = sum(t.nbytes for t in (*net.parameters(), *net.buffers()))
    teachers = recipe.members * weights if method.needs_teachers else 0
    members = student_members(method, recipe.members)
    example = torch.zeros(2, source.channels, *source.image_size) if len(source.image_size) == 2 else features(source)
    share = 0.5 if recipe.precision == "bf16" else 1.0
    kept = saved_bytes(net, example) / len(example) * share
    return 3 * weights + teachers + members * kept * recipe.optim.batch_size / recipe.optim.accumulate


def features(source: Source) -> Tensor:
    return torch.zeros(2, *source.image_size)


def saved_bytes(net: nn.Module, x: Tensor) -> int:
    """What autograd keeps of a forward pass, each piece of memory once and the weights not at all."""
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
    return sum(seen.values())
