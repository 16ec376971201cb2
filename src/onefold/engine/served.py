"""Rebuilds what a finished run serves from its folder."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor, nn

from onefold.engine.keeping.checkpoint import load_network
from onefold.engine.networks.named import doubt, found_at, network_of
from onefold.engine.result import served_network
from onefold.methods import METHODS, AnyStudent, Method, method_named
from onefold.run import RunFolder
from onefold.types import Prediction


class Own(NamedTuple):
    """What a run folder written from Python does not hold: its network, inputs for it, and a method of one's own."""

    net: nn.Module | None = None
    example: Tensor | None = None
    method: Method | None = None


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


def served_by(run: RunFolder, given: str = "", own: Own | None = None) -> Served:
    """What a run serves; an unfinished run, or one whose network cannot be rebuilt, is refused.

    If the file that defines a user's network has moved, `given` says where it is.
    """
    run.result  # noqa: B018 -- raises if the run is not finished
    own = own or Own()
    about = found_at(run.about, given)
    net, example = network_of(about) if own.net is None else (copy.deepcopy(own.net).cpu(), own.example)
    method = method_of(run, about["method"], own.method)
    student = method.student(net, about["members"], None if example is None else example.cpu())
    network = served_network(method, student)
    load_network(run.model, network, doubt(about) if own.net is None else "")
    return Served(network, student, method.predict, example)


def method_of(run: RunFolder, name: str, given: Method | None) -> Method:
    """The method of a run, which has to be given if it is the user's own: the folder knows its name alone."""
    if given is None and name not in METHODS:
        raise ValueError(
            f"method: {run.path} was trained with a method of your own, '{name}', which decides how its network "
            f"predicts; give it as onefold.load(run, method=...) or onefold.export.export(run, format, method=...)"
        )
    if given is None:
        return method_named(name)
    if given.name != name:
        raise ValueError(f"method: expected '{name}', with which {run.path} was trained, got '{given.name}'")
    return method_named(given)
