"""What a finished run serves, built again from its folder."""

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
    """The network at rest, with the weights of model.safetensors under their keys.

    student: what the run's method makes of a fresh network, its factors not loaded.
    predict: the one answer, from logits `[M, B, K]`.
    example: inputs of the shape it takes; None where a network was given without.
    """

    network: nn.Module
    student: AnyStudent
    predict: Prediction
    example: Tensor | None


def served_by(run: RunFolder, given: str = "", own: tuple[nn.Module, Tensor | None] | None = None) -> Served:
    """A run that is not finished, or whose network cannot be built again, is refused with a sentence.

    A file of the user's own may have moved to where the network `given` is. A network that was trained from Python is
    not in its folder: `own` is one of its architecture, and inputs if there are any.
    """
    run.result  # noqa: B018 -- refuses what is not finished
    about = found_at(run.about, given)
    net, example = network_of(about) if own is None else (copy.deepcopy(own[0]).cpu(), own[1])
    method = method_named(about["method"])
    student = method.student(net, about["members"], None if example is None else example.cpu())
    network = served_network(method, student)
    load_network(run.model, network, doubt(about) if own is None else "")
    return Served(network, student, method.predict, example)
