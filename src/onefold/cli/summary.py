"""The summary before a run starts: recipe, data, network, passes per step, memory."""

from __future__ import annotations

from onefold.data import Augmentation, ResizedCrop, Source, load, rows
from onefold.engine import build_network
from onefold.engine.cost.memory import memory
from onefold.engine.cost.passes import passes_of
from onefold.engine.from_recipe import augmentation_of
from onefold.engine.networks.named import shown
from onefold.methods import method_named, perturbation_named
from onefold.recipe import Recipe
from onefold.terminal import display


def summary(recipe: Recipe, source: Source, *, student: bool) -> str:
    """Two columns of text."""
    method = method_named(recipe.distill.method if student else "supervised")
    perturbation = perturbation_named(recipe.distill.perturbation if student else "none")
    net = build_network(recipe.network, len(source.classes), source.statistics, source.image_size)
    named = shown(recipe.network, len(source.classes), source.statistics, source.image_size)
    table = [*rows(source), ("recipe", f"{recipe.name}, seed {recipe.seed}")]
    table.append(("training", f"epochs {recipe.epochs}, batch size {recipe.optim.batch_size}, lr {recipe.optim.lr:g}"))
    if augment := described(augmentation_of(recipe, source)):
        table.append(("augment", augment))
    table.append(("network", f"{named}, {sum(p.numel() for p in net.parameters()):,} parameters"))
    if student:
        table.append(("student", f"{method.name} of {recipe.members} teachers, perturbation {perturbation.name}"))
    else:
        table.append(("teachers", f"{recipe.members}"))
    table.append(("per step", str(passes_of(method, perturbation, recipe.members))))
    needed = memory(recipe, source, net, method) / 2**20
    table.append(("memory", f"estimated {max(needed, 1):,.0f} MiB, not counting torch itself and the data"))
    width = max(len(name) for name, _ in table)
    return "\n".join(f"{name:<{width}}  {text}" for name, text in table)


def described(augment: Augmentation | None) -> str:
    """How training images are augmented. Names the flag to turn it off: images such as letters must not be mirrored."""
    if augment is None:
        return ""
    if isinstance(augment, ResizedCrop):
        crops = f"random crops resized to {augment.size} x {augment.size}"
    else:
        crops = f"crops shifted by up to {augment.pad} pixel{'s' * (augment.pad != 1)}" if augment.pad else ""
    mirrored = "random mirroring; --data.no-augment turns it off" if augment.flip else ""
    return " and ".join(part for part in (crops, mirrored) if part)


def source_of(recipe: Recipe) -> Source:
    """The recipe's data."""
    data = recipe.data
    with display() as shown:
        looked = shown.stage(f"reading {data.source}").count
        return load(
            data.source,
            data.root,
            download=data.download,
            skip_unreadable=data.skip_unreadable,
            progress=lambda done, total: looked(done, total),
        )
