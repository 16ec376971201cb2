"""A training run described as data: a recipe is complete, frozen, and the same on every machine."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass, field
from types import NoneType
from typing import Any, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

from onefold.names import check_pair, method_needs, perturbation_needs

Part = TypeVar("Part")
WORDS = {str: "text", bool: "true or false", int: "a whole number", float: "a number", NoneType: "null"}


@dataclass(frozen=True)
class DataRecipe:
    """Where the examples come from."""

    source: str = "digits"
    """cifar10, cifar100, svhn, tiny-imagenet, imagenet, digits, folder:PATH, npz:PATH or hf:NAME"""
    root: str = "data"
    """folder that contains the data sets"""
    download: bool = False
    """download the data set if it is not there"""
    skip_unreadable: bool = False
    """skip unreadable files instead of stopping"""
    augment: bool = True
    """random crops and flips of images"""
    workers: int | None = None
    """loader processes for data sets that do not fit in memory; by default one per core, at most 8"""


@dataclass(frozen=True)
class OptimRecipe:
    """SGD with Nesterov momentum, a linear warm-up and a cosine decay to zero."""

    lr: float = 0.1
    """learning rate after the warm-up"""
    momentum: float = 0.9
    """share of the last step that goes on in the next, as Nesterov has it"""
    weight_decay: float = 5e-4
    """lambda: decay of the weights toward zero, and of LatentBE's factors toward one"""
    batch_size: int = 128
    """examples per step, over all processes"""
    warmup_epochs: float = 5
    """epochs over which the learning rate rises to lr"""
    warmup_start: float = 0.01
    """learning rate at the first step, as a fraction of lr"""
    drop_last: bool = False
    """drop the last batch of an epoch if it is not full"""
    clip: float | None = None
    """largest norm of the gradient"""
    accumulate: int = 1
    """number of parts in which each batch is processed, to save memory"""
    label_smoothing: float = 0.0
    """share of each label that is spread over all classes, when training teachers"""
    ema: float | None = None
    """decay of an exponential moving average of the weights, which is then evaluated and served"""


@dataclass(frozen=True)
class DistillRecipe:
    """How the student learns from the teachers."""

    method: str = "latentbe"
    """kd, aekd, proxy-end2, be or latentbe"""
    perturbation: str = "tdiv-sdiv"
    """none, gaussian, ods, confods, tdiv or tdiv-sdiv"""
    alpha: float = 1.0
    """weight of the teachers' loss; the loss on the labels gets 1 - alpha"""
    temperature: float = 4.0
    """temperature that divides the logits in the loss, the paper's tau"""
    cap: float = 0.6
    """C, the largest weight of any one teacher in AE-KD"""


@dataclass(frozen=True)
class ParallelRecipe:
    """How the processes of torchrun share the work; results are the same up to rounding."""

    mode: Literal["auto", "data", "members"] = "auto"
    """when training teachers: data splits every batch over all processes, members trains different teachers in each
    process; auto is members if there are enough teachers"""
    teachers: Literal["auto", "replicated", "spread"] = "auto"
    """when training students: replicated puts all teachers on every process, spread only some of them; auto is spread
    if they do not all fit"""


@dataclass(frozen=True)
class Recipe:
    """A complete training run, of teachers or of a student."""

    name: str
    """name of the recipe"""
    network: str = "wrn28x1"
    """wrnDxK (depth D, width K) such as wrn28x1, resnet18-small, resnet50 or mlp; or FILE.py:NAME, a class or function
    of your own that makes a network"""
    members: int = 4
    """M: number of teachers to train, and of members of the student"""
    epochs: int = 200
    """passes over the training images"""
    seed: int = 0
    """seed of all random numbers; use other seeds for repetitions"""
    data: DataRecipe = field(default_factory=DataRecipe)
    optim: OptimRecipe = field(default_factory=OptimRecipe)
    distill: DistillRecipe = field(default_factory=DistillRecipe)
    parallel: ParallelRecipe = field(default_factory=ParallelRecipe)
    device: str = "auto"
    """auto, cpu, cuda or cuda:N"""
    precision: Literal["auto", "float32", "bf16"] = "auto"
    """precision of matrix products and convolutions: bf16 uses autocast; auto is bf16 on a GPU that supports it, else
    float32"""
    fast: bool = True
    """use a faster memory layout (channels last), also on a CPU; on a GPU also rewrite the networks into few fused
    kernels and run each step as one CUDA graph"""
    compile: bool = False
    """compile the step with torch.compile"""
    eval_every: int = 1
    """epochs between evaluations on the validation split; the best evaluated epoch is served"""
    eval_last: int = 1
    """number of final epochs that are all evaluated, whatever eval_every is"""
    diversity_every: int | None = None
    """epochs between measurements of the members' diversity; 0 for none; by default as often as is cheap"""

    def __post_init__(self) -> None:
        for name, value in leaves(self).items():
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"{name}: expected a finite number, got {value}")
        positive = {"members": self.members, "epochs": self.epochs}
        positive |= {"eval_every": self.eval_every, "eval_last": self.eval_last}
        positive |= {"optim.batch_size": self.optim.batch_size, "optim.accumulate": self.optim.accumulate}
        for name, count in positive.items():
            if count < 1:
                raise ValueError(f"{name}: expected at least 1, got {count}")
        if self.diversity_every is not None and self.diversity_every < 0:
            raise ValueError(f"diversity_every: expected at least 0, got {self.diversity_every}")
        for name, number in {"optim.lr": self.optim.lr, "distill.temperature": self.distill.temperature}.items():
            if number <= 0:
                raise ValueError(f"{name}: expected a positive number, got {number}")
        if not 0 <= self.distill.alpha <= 1:
            raise ValueError(f"distill.alpha: expected a value from 0 to 1, got {self.distill.alpha}")
        if self.optim.warmup_epochs > self.epochs:
            tenth = f"{self.epochs / 10:g}"
            raise ValueError(
                f"optim.warmup_epochs: expected at most the {self.epochs} epochs, got {self.optim.warmup_epochs:g}; "
                f"use --optim.warmup-epochs {tenth}, a tenth of them (warmup_epochs={tenth} in Python), or more epochs"
            )
        if self.optim.ema is not None and not 0 < self.optim.ema < 1:
            raise ValueError(f"optim.ema: expected a decay between 0 and 1, got {self.optim.ema}")
        method, perturbation = method_needs(self.distill.method), perturbation_needs(self.distill.perturbation)
        check_pair(method, perturbation, self.members)


def evaluated(epoch: int, epochs: int, every: int, last: int) -> bool:
    """Whether an epoch (counted from 1) ends with an evaluation; the last one always does."""
    return epoch % every == 0 or epoch > epochs - last


def leaves(recipe: Any, prefix: str = "") -> dict[str, Any]:
    """Every field by its dotted name."""
    found: dict[str, Any] = {}
    for entry in dataclasses.fields(recipe):
        value = getattr(recipe, entry.name)
        name = f"{prefix}{entry.name}"
        found |= leaves(value, f"{name}.") if dataclasses.is_dataclass(value) else {name: value}
    return found


def to_dict(recipe: Recipe) -> dict[str, Any]:
    return dataclasses.asdict(recipe)


def from_dict(record: dict[str, Any]) -> Recipe:
    """A recipe from its JSON; fields that are missing, unknown or of the wrong type are refused by name."""
    return part_of(Recipe, record)


def part_of(cls: type[Part], record: Any, prefix: str = "") -> Part:
    """A dataclass from its JSON; fields that have a default may be missing."""
    if not isinstance(record, dict):
        where = f"recipe: {prefix[:-1]}" if prefix else "recipe"
        raise ValueError(f"{where}: expected a JSON object, got {shown(record)}")
    hints, values = get_type_hints(cls), {}
    extra = sorted(set(record) - set(hints))
    if extra:
        listed = ", ".join(f"{prefix}{name}" for name in extra)
        raise ValueError(f"recipe: unknown fields {listed}; it was written by another version of onefold")
    for entry in dataclasses.fields(cast(Any, cls)):
        hint, name = hints[entry.name], f"{prefix}{entry.name}"
        if entry.name not in record:
            if entry.default is entry.default_factory is dataclasses.MISSING:
                raise ValueError(f"recipe: expected a {name}, got none")
        elif dataclasses.is_dataclass(hint):
            values[entry.name] = part_of(cast(type[Any], hint), record[entry.name], f"{name}.")
        elif fits(record[entry.name], hint):
            values[entry.name] = record[entry.name]
        else:
            raise ValueError(f"recipe: {name}: expected {in_words(hint)}, got {shown(record[entry.name])}")
    return cls(**values)


def fits(value: Any, hint: Any) -> bool:
    """Whether a JSON value has a type: an int also counts as a float, and a bool as neither."""
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    options = get_args(hint) or (hint,)
    if isinstance(value, bool):
        return bool in options
    return isinstance(value, options) or (isinstance(value, int) and float in options)


def in_words(hint: Any) -> str:
    options = get_args(hint) if get_origin(hint) is Literal else [WORDS[option] for option in get_args(hint) or (hint,)]
    return " or ".join(filter(None, (", ".join(options[:-1]), options[-1])))


def shown(value: Any) -> str:
    """A value as it appears in the file, truncated if it is long."""
    return json.dumps(value, default=repr)[:80]
