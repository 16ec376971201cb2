"""Rebuilds what a finished run serves from its folder."""

from __future__ import annotations

import copy
from dataclasses import dataclass

from torch import Tensor, nn

from onefold.engine.keeping.checkpoint import load_network
from onefold.engine.networks.named import doubt, found_at, network_of
from onefold.engine.result import served_network
from onefold.methods import AnyStudent, method_named
from onefold.run import RunFolder
from onefold.types import Prediction


@dataclass(frozen=True, eq=False)
class Served:
    """The network in evaluation mode, with the weights from model.safetensors under the same keys.

    student: the method's student of a fresh network; its factors are not loaded.
    predict: combines logits `[M, B, K]` into one prediction.
    example: inputs of a valid shape; None if the user gave a network without any.
    """

    network: nn.Module
    student: AnyStudent
    predict: Prediction
    example: Tensor | None


def served_by(run: RunFolder, given: str = "", own: tuple[nn.Module, Tensor | None] | None = None) -> Served:
    """What a run serves; an unfinished run, or one whose network cannot be rebuilt, is refused.

    If the file that defines a user's network has moved, `given` says where it is. A run folder written from Python does
    not record its network: `own` is then a network of that architecture, and optionally inputs for it.
    """
    run.result  # noqa: B018 -- raises if the run is not finished
    about = found_at(run.about, given)
    net, example = network_of(about) if own is None else (copy.deepcopy(own[0]).cpu(), own[1])
    method = method_named(about["method"])
    student = method.student(net, about["members"], None if example is None else example.cpu())
    network = served_network(method, student)
    load_network(run.model, network, doubt(about) if own is None else "")
    return Served(network, student, method.predict, example)
