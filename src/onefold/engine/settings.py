"""The settings of a training run, apart from its networks and data."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from numbers import Real

from onefold.recipe import OptimRecipe, Recipe


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
        o = self.optim
        counts = {"epochs": self.epochs, "batch_size": o.batch_size, "accumulate": o.accumulate}
        counts |= {"eval_every": self.eval_every, "eval_last": self.eval_last, "log_every": self.log_every}
        for name, count in counts.items():
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise ValueError(f"{name}: expected a whole number of at least 1, got {count!r}")
        every = self.diversity_every
        if every is not None and (isinstance(every, bool) or not isinstance(every, int) or every < 0):
            raise ValueError(f"diversity_every: expected a whole number of at least 0, or None, got {every!r}")
        numbers: dict[str, object] = {"lr": o.lr, "temperature": self.temperature, "alpha": self.alpha, "cap": self.cap}
        numbers |= {"momentum": o.momentum, "weight_decay": o.weight_decay, "label_smoothing": o.label_smoothing}
        numbers |= {"warmup_epochs": o.warmup_epochs, "warmup_start": o.warmup_start, "minutes": self.minutes}
        numbers |= {name: value for name, value in {"clip": o.clip, "ema": o.ema}.items() if value is not None}
        for name, given in numbers.items():
            if isinstance(given, bool) or not isinstance(given, Real):
                raise ValueError(f"{name}: expected a number, got {given!r}")
        for name, value in {"lr": o.lr, "temperature": self.temperature}.items():
            if not 0 < value < math.inf:
                raise ValueError(f"{name}: expected a positive number, got {value}")
        for name, value in {"momentum": o.momentum, "weight_decay": o.weight_decay}.items():
            if not 0 <= value < math.inf:
                raise ValueError(f"{name}: expected a number of at least 0, got {value}")
        if not 0 <= self.alpha <= 1:
            raise ValueError(f"alpha: expected a value from 0 to 1, got {self.alpha}")
        if not 0 <= o.label_smoothing < 1:
            raise ValueError(f"label_smoothing: expected at least 0 and less than 1, got {o.label_smoothing}")
        if not 0 <= o.warmup_epochs <= self.epochs:
            raise ValueError(
                f"warmup_epochs: expected from 0 to the {self.epochs} epochs, got {o.warmup_epochs}; give 0 for none"
            )
        if not 0 <= o.warmup_start <= 1:
            raise ValueError(f"warmup_start: expected a value from 0 to 1, got {o.warmup_start}")
        if o.clip is not None and not 0 < o.clip < math.inf:
            raise ValueError(f"clip: expected a positive number, got {o.clip}")
        if o.ema is not None and not 0 < o.ema < 1:
            raise ValueError(f"ema: expected a decay between 0 and 1, got {o.ema}")
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
