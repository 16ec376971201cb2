"""Whether averaging the members hurts: compares each member, their ensemble, and the averaged network."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from onefold.data import Loader
from onefold.engine.distributed.world import ALONE, World
from onefold.engine.evaluate import shared
from onefold.engine.reestimate import reestimate, statistics_of
from onefold.ensemble import BatchEnsemble, Plain, collapse
from onefold.metrics import Classification, log_mean_probabilities
from onefold.metrics.accumulator import Accumulator

KEPT = ("acc", "nll", "ece")
WORSE = 1.1  # an NLL above this multiple of the members' mean counts as worse
MATTERS = 0.02  # differences in NLL below this do not: statistics of perturbed images and of others make as much
ERRORS = 2.0  # a difference of this many standard errors is not chance
WIDE = 0.1  # members whose accuracies are further apart have not all been trained well
PYTHON = {name: name for name in ("epochs", "batch_size", "lr", "weight_decay")} | {"clip": "clip=1.0"}
FLAGS = {"epochs": "--epochs", "batch_size": "--optim.batch-size", "lr": "--optim.lr", "clip": "--optim.clip 1.0"}
FLAGS |= {"weight_decay": "--optim.weight-decay"}
REMEDY = "from Python, onefold.engine.reestimate.reestimate(net, batches of training images)"


def averaging_health(
    student: BatchEnsemble,
    loader: Loader,
    inputs: Iterable[Tensor] | None,
    classes: int,
    world: World = ALONE,
) -> dict[str, Any]:
    """ACC, NLL and ECE of each member, of their ensemble, of the collapsed network, and of the collapsed network with
    BatchNorm statistics re-estimated on `inputs` (augmented training inputs), if there are any."""
    networks = {"collapsed": Plain(collapse(student)).eval()}
    if inputs is not None and statistics_of(networks["collapsed"]):
        again = copy.deepcopy(networks["collapsed"])
        reestimate(again, inputs)
        networks["collapsed_reestimated"] = again
    members = [Classification(classes) for _ in range(student.members)]
    ensemble, single = Classification(classes), {name: Classification(classes) for name in networks}
    apart = {"members": Difference(), "collapsed_reestimated": Difference()}
    with torch.no_grad():
        for x, labels in loader.batches():
            losses: list[Tensor] = []
            for part, of_part in zip(x.chunk(student.members), labels.chunk(student.members), strict=True):
                logits = student.at_rest(part)  # [M, B / M, K]: needs no more memory than the collapsed network
                for m, metrics in enumerate(members):
                    metrics.update(logits[m], of_part)
                ensemble.update(log_mean_probabilities(logits), of_part)
                losses.append(loss_of(logits, of_part))
            own = {"members": torch.cat(losses)}
            for name, network in networks.items():
                logits = network(x)
                single[name].update(logits, labels)
                own[name] = loss_of(logits, labels)
            for name in own.keys() & apart.keys():
                apart[name].update(own["collapsed"] - own[name])
    if shared(loader):
        for sums in (*members, ensemble, *single.values(), *apart.values()):
            world.merge(sums)
    return {
        "members": [kept(metrics.compute()) for metrics in members],
        "ensemble": kept(ensemble.compute()),
        "collapsed_reestimated": None,
        **{name: kept(metrics.compute()) for name, metrics in single.items()},
        "nll_errors": {name: difference.compute()["error"] for name, difference in apart.items()},
        "count": int(ensemble.compute()["count"]),
        "warning": None,
    }


def loss_of(logits: Tensor, labels: Tensor) -> Tensor:
    """The NLL of each example `[B]`, averaged over the members."""
    picked = labels.long().clamp(0, logits.shape[-1] - 1).expand(len(logits), -1)  # wrong labels are refused later
    return -logits.float().log_softmax(-1).gather(-1, picked[..., None])[..., 0].mean(0)


class Difference(Accumulator):
    """The standard error of the mean of a difference measured on each example."""

    def __init__(self) -> None:
        super().__init__({"sums": (3,)}, None)

    def update(self, difference: Tensor) -> None:
        self._follow(difference)
        d = difference.to(self._sums["sums"].dtype)
        self._sums["sums"] += torch.stack([torch.ones_like(d), d, d.square()]).sum(1)

    def compute(self) -> dict[str, float]:
        count, total, squares = self._sums["sums"].tolist()
        return {"error": math.sqrt(max(0.0, squares - total**2 / count) / max(count - 1, 1) / count) if count else 0.0}


def kept(metrics: dict[str, float]) -> dict[str, float]:
    return {name: metrics[name] for name in KEPT}


def hurts(network: dict[str, float], others: list[dict[str, float]], count: int, nll_error: float = 0.0) -> bool:
    """The rule: a network is worse than others if its NLL is more than 10% above their mean, its accuracy is more than
    two standard errors below theirs, or both.

    The difference in NLL must matter and be more than two of its standard errors, which come from the differences on
    single examples. That of an accuracy counts one more example right and one more wrong: it is never zero.
    """
    acc, nll = mean(others, "acc"), mean(others, "nll")
    likely = (acc * count + 1) / (count + 2)
    error = math.sqrt(likely * (1 - likely) / (count + 2))
    more = network["nll"] - nll
    unlikely = more > max(MATTERS, (WORSE - 1) * nll, ERRORS * nll_error)
    return unlikely or network["acc"] < acc - ERRORS * error - 1e-12


def lags(network: dict[str, float], again: dict[str, float], count: int, nll_error: float) -> bool:
    """Whether re-estimated statistics are better, and lose no accuracy for their NLL."""
    return again["acc"] >= network["acc"] and hurts(network, [again], count, nll_error)


def warning_of(health: dict[str, Any], split: str, *, python: bool = False) -> str | None:
    """A warning with advice if averaging hurts, or if BatchNorm's running statistics hurt members and average alike.
    The advice names the arguments of `onefold.distill`, or the flags of the command line."""
    members, count, again = health["members"], health["count"], health["collapsed_reestimated"]
    errors, name = health.get("nll_errors", {}), PYTHON if python else FLAGS
    if not hurts(health["collapsed"], members, count, errors.get("members", 0.0)):
        error = errors.get("collapsed_reestimated", 0.0)
        if again is None or not lags(health["collapsed"], again, count, error):
            return None
        return (
            f"BatchNorm's running statistics lag behind the weights: on {split} the network has "
            f"{told(health['collapsed'])}, but {told(again)} with statistics re-estimated on training images. Train "
            f"for more steps ({name['epochs']}, or a smaller {name['batch_size']}), or serve it with those ({REMEDY})"
        )
    typical = {metric: mean(members, metric) for metric in KEPT}
    text = (
        f"averaging hurts: on {split} the collapsed network has {told(health['collapsed'])}, but its members have "
        f"{told(typical)} on average"
    )
    least, most = (end(member["acc"] for member in members) for end in (min, max))
    if most - least > WIDE:
        return text + (
            f", from ACC {100 * least:.2f}% to {100 * most:.2f}%: some diverged in training. Use a lower learning rate "
            f"({name['lr']}), or clip the gradient ({name['clip']})"
        )
    if again is not None and not hurts(again, members, count):
        return text + (
            f"; re-estimating BatchNorm statistics on training images fixes this ({told(again)}): serve the network "
            f"with those ({REMEDY})"
        )
    return text + (
        f"; keep the factors closer to one with a larger {name['weight_decay']} or a lower {name['lr']} (the "
        f"factors' learning rate is M times as large), or train longer ({name['epochs']})"
        + ("" if again is None else f"; re-estimated BatchNorm statistics are not enough ({told(again)})")
    )


def told(metrics: dict[str, float]) -> str:
    return f"ACC {100 * metrics['acc']:.2f}% and NLL {metrics['nll']:.4f}"


def mean(members: list[dict[str, float]], name: str) -> float:
    return sum(member[name] for member in members) / len(members)
