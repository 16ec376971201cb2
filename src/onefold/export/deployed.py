"""What is exported: one module that answers `[B, K]`, and what whoever serves it has to know."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from onefold.engine.evaluate import evaluate_run
from onefold.engine.keeping.environment import version
from onefold.engine.measure.subject import is_teachers
from onefold.engine.networks.named import example_of, found_at
from onefold.engine.networks.own_network import is_own
from onefold.engine.served import served_by
from onefold.engine.teachers import load_networks, teacher_runs
from onefold.ensemble import Teachers
from onefold.metrics import Calibrated, calibrated, log_mean_probabilities
from onefold.run import RunFolder
from onefold.types import Ensemble, Prediction

EXAMPLES = 5  # that the exported network is compared on; and no batch of any special size


@dataclass(frozen=True, eq=False)
class Deployed:
    """A network with its temperature, on a CPU and at rest.

    answer: inputs `[B, ...]` to logits `[B, K]`, whose softmax is the prediction.
    weights: the network whose state dict is kept, the temperature in its last layer where it ends in one.
    example: inputs as it may see them, drawn.
    facts: what can be said of it in JSON.
    """

    path: Path
    answer: nn.Module
    weights: nn.Module
    example: Tensor
    about: dict[str, Any]
    facts: dict[str, Any]

    @property
    def ordinary(self) -> bool:
        """Whether the weights alone, in the network they are of, give the answer."""
        return self.weights is self.answer


def deployed(
    folder: Path | str, calibrate: bool = True, given: str = "", own: tuple[nn.Module, Tensor] | None = None
) -> Deployed:
    """The network of a finished run, or the ensemble of a folder of teachers, calibrated where the run has a
    temperature; `given` and `own` as in `served_by`."""
    path = Path(folder).expanduser()
    if not path.is_dir():
        raise ValueError(f"{folder}: there is no such folder; give the folder of a run, or of teachers")
    network: nn.Module
    predict: Prediction | None
    if is_teachers(path):
        if own is not None:
            raise ValueError(f"net: expected the folder of one run, got {path}, which holds teachers")
        run, *others = teacher_runs(path)
        # In training their weights lie in one stack; in a file each has its own.
        network, predict = copied(Teachers(load_networks([run, *others], given=given)).eval()), log_mean_probabilities
        kind = {"kind": "ensemble", "networks": 1 + len(others)}
    else:
        run = RunFolder(path)
        if run.finished and own is None and "image_size" not in run.about:
            raise ValueError(
                f"{path} was trained from Python, and its folder has the weights alone; from there: "
                "onefold.export.export(run, format, net=Net(), example=x)"
            )
        served = served_by(run, given, own)
        network, predict = served.network, served.predict
        if predict is log_mean_probabilities and not isinstance(network, Ensemble):
            predict = None  # of one network its logits have the same softmax
        kind = {"kind": run.about.get("kind", "network"), "networks": getattr(network, "members", 1)}
    metrics = evaluate_run(path)
    about = found_at(run.about, given)
    example = drawn(about) if own is None else own[1][torch.arange(EXAMPLES) % len(own[1])].cpu()
    temperature = metrics.get("temperature", run.result.get("temperature") if run.path == path else None)
    if calibrate and temperature is not None:
        answer = calibrated(network, temperature, example, predict=predict)
    else:
        answer = network if predict is None else Calibrated(network, 1.0, predict)
    weights = network if isinstance(answer, Calibrated) else answer
    facts = kind | facts_of(run, about, type(network).__name__, example) | {"metrics": metrics}
    facts |= {"temperature": temperature, "calibrated": calibrate and temperature is not None}
    return Deployed(path, answer.eval(), weights.eval(), example, about, facts)


def copied(module: nn.Module) -> nn.Module:
    """The same module, each of its tensors in memory of its own."""
    module = copy.deepcopy(module)
    for tensor in (*module.parameters(), *module.buffers()):
        tensor.data = tensor.data.clone()
    return module


def drawn(about: dict[str, Any]) -> Tensor:
    """Images in [0, 1], or features about their means: `[5, ...]`, the same each time."""
    statistics, size = about["statistics"], about["image_size"]
    shape = (EXAMPLES, *example_of(statistics, size).shape[1:])
    draws = torch.Generator().manual_seed(0)
    if len(size) == 2:
        return torch.rand(shape, generator=draws)
    mean, std = (torch.tensor(values) for values in statistics)
    return mean + std * torch.randn(shape, generator=draws)


def facts_of(run: RunFolder, about: dict[str, Any], network: str, example: Tensor) -> dict[str, Any]:
    recipe, size = run.recipe, about.get("image_size")
    shape: dict[str, Any] = {"shape": list(example.shape[1:]), "dtype": str(example.dtype).removeprefix("torch.")}
    if size is not None:
        shape |= {"range": [0.0, 1.0], "layout": "[B, C, H, W]"} if len(size) == 2 else {"layout": "[B, F]"}
    return {
        "onefold": version("onefold"),
        "network": published_network(about.get("network", network)),
        "method": about["method"],
        "perturbation": about["perturbation"],
        "teachers": about.get("taught_by", recipe.get("members")) if about["method"] != "supervised" else None,
        "data": published_data(about.get("data", "data of its own")),
        "epochs": recipe.get("epochs"),
        "classes": about["classes"],
        "class_names": about.get("class_names"),
        "statistics": about.get("statistics"),
        "input": {"layout": "[B, ...]"} | shape,
        "output": "logits [B, K]: their softmax is the prediction",
        "evaluated_on": "test" if run.predictions_file("test").exists() else "val",
    }


# What is published does not say where things lie on somebody's disk.


def published_network(name: str) -> str:
    """../nets/mine.py:Net is mine.py:Net."""
    place, _, attribute = name.rpartition(":")
    return f"{Path(place).name}:{attribute}" if is_own(name) else name


def published_data(name: str) -> str:
    """npz:/home/me/mine.npz is mine.npz."""
    kind, _, place = name.partition(":")
    return Path(place).name if kind in ("npz", "folder") else name
