"""The optimizer and the schedule of a training run: the paper's, or those made by the user's functions."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import Tensor
from torch.optim import LBFGS, SGD, Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from onefold.engine.optim.schedule import Given, OnPlateau, Schedule, WarmupCosine
from onefold.engine.settings import Settings
from onefold.ensemble import BatchEnsemble
from onefold.methods import AnyStudent

OptimizerFactory = Callable[[list[dict[str, Any]]], Optimizer]
SchedulerFactory = Callable[[Optimizer], LRScheduler]


def optimizer_for(
    student: AnyStudent,
    settings: Settings,
    factory: OptimizerFactory | None,
    fast: bool = False,
    unsaid: Collection[str] = (),
) -> Optimizer:
    """SGD with Nesterov momentum, or the optimizer that the user's factory makes from the student's parameter groups.

    The groups contain "lr" and "weight_decay", which override the values an optimizer is constructed with. Those listed
    in `unsaid` were not given by the user, so the optimizer's own values are used for them.

    The `fast` SGD updates everything in a few kernels and reads its learning rates from tensors, so that it can be
    captured.
    """
    optim = settings.optim
    groups = student.parameter_groups(optim.lr, optim.weight_decay)
    if factory is None:
        if fast:
            device = next(student.parameters()).device
            groups = [group | {"lr": torch.tensor(float(group["lr"]), device=device)} for group in groups]
        return SGD(groups, lr=optim.lr, momentum=optim.momentum, nesterov=optim.momentum > 0, fused=fast or None)
    if not callable(factory):
        raise ValueError(
            "optimizer: expected a function of parameter groups that returns a torch optimizer, such as "
            f"lambda groups: AdamW(groups, lr=1e-3), got a {type(factory).__name__} object"
        )
    optimizer = factory(groups)
    if not isinstance(optimizer, Optimizer):
        raise ValueError(f"optimizer: expected a function that returns a torch optimizer, got {optimizer!r}")
    if isinstance(optimizer, LBFGS):
        raise ValueError("optimizer: expected one that takes a step from one gradient, got LBFGS")
    known = {id(p) for group in groups for p in group["params"]}
    if any(id(p) not in known for group in optimizer.param_groups for p in group["params"]):
        raise ValueError(
            "optimizer: expected one of the parameter groups it is given, got one of other parameters; the student is "
            "made of a copy of the network, so the parameters of `net` itself are never trained"
        )
    given = {"lr": optim.lr, "weight_decay": optim.weight_decay}
    wanted = {name: wanted_rate(optimizer, name, value, name in unsaid) for name, value in given.items()}
    # Optimizers other than SGD normalise the gradient's scale, so the factors need no learning rate of their own.
    adaptive = not isinstance(optimizer, SGD) and isinstance(student, BatchEnsemble)
    return factory(student.parameter_groups(**wanted, adaptive=adaptive)) if adaptive or wanted != given else optimizer


def wanted_rate(optimizer: Optimizer, name: str, given: float, unsaid: bool) -> float:
    """The value of `name` to train with; an error if the factory and the caller give different ones."""
    own = optimizer.defaults.get(name)
    if not isinstance(own, int | float | Tensor):
        return given
    usual = usual_rate(type(optimizer), name)
    if unsaid:
        # Most optimizers have no weight decay by default, but LatentBE needs it to pull the factors toward one.
        return given if name == "weight_decay" and own == 0 and usual in (0, None) else float(own)
    if own == usual or math.isclose(float(own), given, rel_tol=1e-6):  # `own` may be a float32 tensor
        return given
    raise ValueError(
        f"optimizer: expected one {name}, got {name}={float(own):g} in the function that makes "
        f"{type(optimizer).__name__} and {name}={given:g} as an argument; leave out one of them"
    )


def usual_rate(kind: type[Optimizer], name: str) -> Any:
    """The default value in an optimizer class's constructor, or in a base class's if it has no such parameter."""
    above = (each for each in kind.__mro__ if issubclass(each, Optimizer))
    found = (inspect.signature(each).parameters.get(name) for each in above)
    return next((parameter.default for parameter in found if parameter is not None), None)


def schedule_for(
    optimizer: Optimizer, settings: Settings, steps: int, factory: SchedulerFactory | None, *, measured: bool
) -> Schedule:
    """Warm-up and cosine decay over the whole training (`steps` per epoch), or what the user's factory makes.

    `measured` says whether there is a validation split, which ReduceLROnPlateau needs.
    """
    total = settings.epochs * steps
    if factory is None:
        return WarmupCosine(optimizer, total, settings.optim.warmup_epochs * steps, settings.optim.warmup_start)
    scheduler = factory(optimizer) if callable(factory) else factory
    if not callable(factory) or not isinstance(scheduler, LRScheduler):
        raise ValueError(
            f"scheduler: expected a function of the optimizer that returns a torch scheduler, got {scheduler!r}"
        )
    if getattr(scheduler, "optimizer", optimizer) is not optimizer:
        raise ValueError("scheduler: expected one of the optimizer it is given, got one of another optimizer")
    planned = getattr(scheduler, "total_steps", None)  # OneCycleLR raises an error beyond these
    if isinstance(planned, int) and planned < total:
        raise ValueError(
            f"scheduler: {type(scheduler).__name__} was made for {planned} steps, but training takes {total} "
            f"({settings.epochs} epochs of {steps}); a scheduler is stepped once per step, not once per epoch"
        )
    if not isinstance(scheduler, ReduceLROnPlateau):
        return Given(scheduler)
    if not measured:
        raise ValueError("scheduler: ReduceLROnPlateau needs measurements on validation data; give val")
    return OnPlateau(scheduler)


HOW = ("foreach", "fused", "capturable")  # these change how an optimizer computes, not what


def load_optimizer(optimizer: Optimizer, state: dict[str, Any]) -> None:
    """Loads a checkpoint's state in the form this optimizer works with.

    Learning rates that are tensors stay the same tensors, because a captured step reads them; and the state of a weight
    gets the weight's memory format, because fused updates traverse both in memory order.
    """
    own = [{key: group[key] for key in ("lr", *HOW) if key in group} for group in optimizer.param_groups]
    optimizer.load_state_dict(state)
    for group, kept in zip(optimizer.param_groups, own, strict=True):
        rate = kept.pop("lr")
        if isinstance(rate, Tensor):
            rate.fill_(float(group["lr"]))
            group["lr"] = rate
        elif isinstance(group["lr"], Tensor):
            group["lr"] = float(group["lr"])
        group.update(kept)
    for parameter, values in optimizer.state.items():
        for name, value in values.items():
            if isinstance(value, Tensor) and value.shape == parameter.shape and value.stride() != parameter.stride():
                values[name] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)
