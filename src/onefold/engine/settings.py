"""The settings of a training run, apart from its networks and data."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

from onefold.recipe import OptimRecipe, Recipe

COUNTS = ("epochs", "batch_size", "accumulate", "eval_every", "eval_last", "log_every")
OPTIONAL = ("clip", "ema")  # may be None
NUMBERS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(("lr", "temperature", "clip"), ("a positive number", lambda v: 0 < v < math.inf)),
    **dict.fromkeys(("momentum", "weight_decay"), ("a number of at least 0", lambda v: 0 <= v < math.inf)),
    **dict.fromkeys(("alpha", "warmup_start"), ("a value from 0 to 1", lambda v: 0 <= v <= 1)),
    "label_smoothing": ("at least 0 and less than 1", lambda v: 0 <= v < 1),
    "ema": ("a decay between 0 and 1", lambda v: 0 < v < 1),
    **dict.fromkeys(("cap", "warmup_epochs", "minutes"), ("a number", lambda _: True)),  # checked elsewhere
}


@dataclass(frozen=True)
class Settings:
    """All settings of a training run; every random number it draws derives from `seed`."""

    epochs: int
    seed: int = 0
    optim: OptimRecipe = field(default_factory=OptimRecipe)
    alpha: float = 1.0
    temperature: float = 4.0
    cap: float = 0.6
    precision: str = "auto"
    """of matrix products and convolutions; "auto" is bf16 on a GPU that supports it, and float32 elsewhere"""
    compile: bool = False
    fast: bool = True
    """a faster memory format (channels-last), also on a CPU; on a GPU also networks rewritten into few kernels, and the
    whole step in one CUDA graph"""
    eval_every: int = 1
    eval_last: int = 1
    """how many of the last epochs are all evaluated"""
    log_every: int = 50
    """steps between two lines of metrics.jsonl; losses are checked at least this often"""
    diversity_every: int | None = None
    """epochs between two records of the members' diversity; 0 for none, None for as often as costs little"""
    minutes: float = 10.0
    """minutes between checkpoints within an epoch"""

    @property
    def hyperparameters(self) -> dict[str, float]:
        """What is passed by name to objectives and perturbations that take it."""
        own = {"alpha": self.alpha, "temperature": self.temperature, "cap": self.cap}
        return own | {"label_smoothing": self.optim.label_smoothing}

    def __post_init__(self) -> None:
        values = vars(self.optim) | vars(self)
        for name in COUNTS:
            count = values[name]
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise ValueError(f"{name}: expected a whole number of at least 1, got {count!r}")
        every = self.diversity_every
        if every is not None and (isinstance(every, bool) or not isinstance(every, int) or every < 0):
            raise ValueError(f"diversity_every: expected a whole number of at least 0, or None, got {every!r}")
        for name, (wanted, fits) in NUMBERS.items():
            value = values[name]
            if value is None and name in OPTIONAL:
                continue
            if isinstance(value, bool) or not isinstance(value, Real):
                raise ValueError(f"{name}: expected a number, got {value!r}")
            if not fits(value):
                raise ValueError(f"{name}: expected {wanted}, got {value}")
        warmup = self.optim.warmup_epochs
        if not 0 <= warmup <= self.epochs:
            raise ValueError(
                f"warmup_epochs: expected from 0 to the {self.epochs} epochs, got {warmup}; give 0 for none"
            )
        if self.precision not in ("auto", "float32", "bf16"):
            raise ValueError(f"precision: expected 'auto', 'float32' or 'bf16', got {self.precision!r}")


def settings_of(recipe: Recipe, seed: int) -> Settings:
    """The settings of one of a recipe's networks, each of which has its own seed."""
    return Settings(
        epochs=recipe.epochs,
        seed=seed,
        optim=recipe.optim,
        alpha=recipe.distill.alpha,
        temperature=recipe.distill.temperature,
        cap=recipe.distill.cap,
        precision=recipe.precision,
        fast=recipe.fast,
        compile=recipe.compile,
        eval_every=recipe.eval_every,
        eval_last=recipe.eval_last,
        diversity_every=recipe.diversity_every,
    )
