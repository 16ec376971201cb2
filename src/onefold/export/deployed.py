"""What is exported: a module that returns `[B, K]`, and the facts that are needed to serve it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from onefold.engine.answering import answering
from onefold.engine.evaluate import evaluate_run, temperature_of
from onefold.engine.keeping.environment import version
from onefold.engine.networks.named import standardized
from onefold.engine.networks.own_network import is_own
from onefold.engine.served import Own
from onefold.export.inputs import input_of
from onefold.metrics import Calibrated
from onefold.run import RunFolder


@dataclass(frozen=True, eq=False)
class Deployed:
    """A network with its temperature, on the CPU in evaluation mode.

    answer: maps inputs `[B, ...]` to logits `[B, K]`, whose softmax is the prediction.
    weights: the network whose state dict is saved; if it ends in a linear layer, that includes the temperature.
    example: random inputs of the right shape and range, or those that were given.
    facts: a description in JSON.
    """

    path: Path
    answer: nn.Module
    weights: nn.Module
    example: Tensor
    about: dict[str, Any]
    facts: dict[str, Any]

    @property
    def ordinary(self) -> bool:
        """Whether the network with these weights gives the prediction by itself, with nothing left to do."""
        return self.weights is self.answer


def deployed(folder: Path | str, calibrate: bool = True, given: str = "", own: Own | None = None) -> Deployed:
    """The network of a finished run, or the ensemble of a folder of teachers, calibrated if the run has a temperature;
    `given` and `own` as in `served_by`."""
    found = answering(folder, "onefold.export.export(run, format, net=Net(), example=x)", given, own)
    path, run = Path(folder).expanduser(), found.runs[0]
    alone = run.path == path
    metrics = evaluate_run(path)
    temperature = temperature_of(path)
    answer = found.at(temperature if calibrate else None)
    weights = found.network if isinstance(answer, Calibrated) else answer
    about, example, members = found.about, found.example, getattr(found.network, "members", 1)
    assert example is not None, "given, or drawn"
    facts = {"kind": run.about.get("kind", "network") if alone else "ensemble", "networks": members}
    facts |= facts_of(run, about, type(found.network).__name__, example) | {"metrics": metrics}
    facts |= {"temperature": temperature, "calibrated": calibrate and temperature is not None}
    if layers := standardized(found.network):
        facts["statistics"] = layers[0]
    return Deployed(path, answer, weights.eval(), example, about, facts)


def facts_of(run: RunFolder, about: dict[str, Any], network: str, example: Tensor) -> dict[str, Any]:
    recipe = run.recipe
    return {
        "onefold": version("onefold"),
        "network": published_network(about.get("network", network)),
        "method": about["method"],
        "perturbation": about["perturbation"],
        "teachers": about.get("taught_by", recipe.get("members")) if about["method"] != "supervised" else None,
        "data": published_data(about.get("data", "custom data")),
        "epochs": recipe.get("epochs"),
        "classes": about["classes"],
        "class_names": about.get("class_names"),
        "input": input_of(run, about, example),
        "output": "logits [B, K]: their softmax is the prediction",
        "evaluated_on": "test" if run.predictions_file("test").exists() else "val",
    }


# Published files must not reveal paths on somebody's disk.


def published_network(name: str) -> str:
    """../nets/mine.py:Net becomes mine.py:Net."""
    place, _, attribute = name.rpartition(":")
    return f"{Path(place).name}:{attribute}" if is_own(name) else name


def published_data(name: str) -> str:
    """npz:/home/me/mine.npz becomes mine.npz, and likewise any other path."""
    kind, _, place = name.partition(":")
    path = kind in ("npz", "folder") or place.startswith(("/", "~", "."))
    return Path(place).expanduser().resolve().name if path else name
