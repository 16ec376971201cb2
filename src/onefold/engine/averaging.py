"""Whether averaging the members hurts: compares each member, their ensemble, and the averaged network."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from onefold.data import Loader
from onefold.engine.distributed.world import ALONE, World
from onefold.engine.evaluate import measure, shared
from onefold.engine.reestimate import reestimate, statistics_of
from onefold.ensemble import BatchEnsemble, Plain, collapse
from onefold.metrics import Classification, log_mean_probabilities

KEPT = ("acc", "nll", "ece")
WORSE = 1.1  # an NLL above this multiple of the members' mean counts as worse
ERRORS = 2.0  # an accuracy this many standard errors below the members' mean counts as worse
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
    members = [Classification(classes) for _ in range(student.members)]
    ensemble = Classification(classes)
    with torch.no_grad():
        for x, labels in loader.batches():
            for part, of_part in zip(x.chunk(student.members), labels.chunk(student.members), strict=True):
                logits = student.at_rest(part)  # [M, B / M, K]: needs no more memory than the collapsed network
                for m, metrics in enumerate(members):
                    metrics.update(logits[m], of_part)
                ensemble.update(log_mean_probabilities(logits), of_part)
    if shared(loader):
        for metrics in (*members, ensemble):
            world.merge(metrics)
    collapsed = collapse(student).eval()
    found: dict[str, Any] = {
        "members": [kept(metrics.compute()) for metrics in members],
        "ensemble": kept(ensemble.compute()),
        "collapsed": kept(measured(collapsed, loader, classes, world)),
        "collapsed_reestimated": None,
    }
    if inputs is not None and statistics_of(collapsed):
        again = copy.deepcopy(collapsed)
        reestimate(again, inputs)
        found["collapsed_reestimated"] = kept(measured(again, loader, classes, world))
    return found | {"count": int(ensemble.compute()["count"]), "warning": None}


def measured(net: nn.Module, loader: Loader, classes: int, world: World = ALONE) -> dict[str, float]:
    return measure(Plain(net).eval(), log_mean_probabilities, loader, classes, world)


def kept(metrics: dict[str, float]) -> dict[str, float]:
    return {name: metrics[name] for name in KEPT}


def hurts(network: dict[str, float], members: list[dict[str, float]], count: int) -> bool:
    """The rule: averaging hurts if the network's NLL is more than 10% above the members' mean, or its accuracy more
    than two standard errors below theirs."""
    acc, nll = mean(members, "acc"), mean(members, "nll")
    error = math.sqrt(acc * (1 - acc) / count)
    return network["nll"] > WORSE * nll or network["acc"] < acc - ERRORS * error - 1e-12


def warning_of(health: dict[str, Any], split: str) -> str | None:
    """A warning with advice if averaging hurts, or if BatchNorm's running statistics hurt members and average alike."""
    members, count, again = health["members"], health["count"], health["collapsed_reestimated"]
    if not hurts(health["collapsed"], members, count):
        if again is None or not hurts(health["collapsed"], [again], count):
            return None
        return (
            f"BatchNorm's running statistics lag behind the weights: on {split} the network has "
            f"{told(health['collapsed'])}, and {told(again)} with statistics re-estimated on training images. Train "
            f"for more steps (--epochs, or a smaller --optim.batch-size), or serve it with those ({REMEDY})"
        )
    typical = {name: mean(members, name) for name in KEPT}
    text = (
        f"averaging hurts: on {split} the collapsed network has {told(health['collapsed'])}, and its members have "
        f"{told(typical)} on average; "
    )
    if again is not None and not hurts(again, members, count):
        return text + (
            f"BatchNorm statistics re-estimated on training images mend it ({told(again)}): serve the network with "
            f"those ({REMEDY})"
        )
    return text + (
        "pull the factors harder toward one (a larger --optim.weight-decay), let them move less (a lower --optim.lr, "
        "of which they get M times as much), or train longer (--epochs)"
        + ("" if again is None else f"; re-estimated BatchNorm statistics are not enough ({told(again)})")
    )


def told(metrics: dict[str, float]) -> str:
    return f"ACC {100 * metrics['acc']:.2f}% and NLL {metrics['nll']:.4f}"


def mean(members: list[dict[str, float]], name: str) -> float:
    return sum(member[name] for member in members) / len(members)
