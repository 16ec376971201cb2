"""A finished run, or a folder of teachers as an ensemble, as one module that maps `[B, ...]` to logits `[B, K]`."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from onefold.data.split import first_few
from onefold.engine.measure.subject import is_teachers
from onefold.engine.networks.named import found_at, standardized
from onefold.engine.networks.own_arguments import example_of
from onefold.engine.networks.own_network import is_own
from onefold.engine.served import Own, served_by
from onefold.engine.teachers import load_networks, teacher_runs
from onefold.ensemble import Teachers
from onefold.metrics import Calibrated, calibrated, log_mean_probabilities
from onefold.run import RunFolder
from onefold.types import Ensemble, Prediction

EXAMPLES = 5  # examples that networks are compared on; deliberately no typical batch size


@dataclass(frozen=True, eq=False)
class Answering:
    """What a folder serves, on the CPU and in evaluation mode.

    runs: the run, or those of all teachers.
    network: the network or ensemble, with its weights loaded.
    predict: combines logits `[M, B, K]` into one prediction; None if the network's own logits have the same softmax.
    example: valid inputs, if known.
    about: what the folder's run.json records.
    """

    runs: list[RunFolder]
    network: nn.Module
    predict: Prediction | None
    example: Tensor | None
    about: dict[str, Any]

    def at(self, temperature: float | None) -> nn.Module:
        """The module whose softmax is the prediction, with its logits divided by the temperature if one is given."""
        if temperature is not None:
            return calibrated(self.network, temperature, self.example, predict=self.predict).eval()
        return (self.network if self.predict is None else Calibrated(self.network, 1.0, self.predict)).eval()


def answering(folder: Path | str, call: str, given: str = "", own: Own | None = None) -> Answering:
    """The network of a finished run, or the ensemble of a folder of teachers; `given` and `own` as in `served_by`.
    `call` shows how to pass a network of one's own, for error messages."""
    own = own or Own()
    path = Path(folder).expanduser()
    if not path.is_dir():
        raise ValueError(f"{folder}: there is no such folder; give a run folder, or a folder of teachers")
    runs = teacher_runs(path) if is_teachers(path) else [RunFolder(path)]
    check_started(path, runs)
    for run in runs:
        check_own(run, call, own.net)
    about = found_at(runs[0].about, given)
    example = (None if "image_size" not in about else drawn(about)) if own.net is None else own.example
    if example is not None:
        example = example[torch.arange(EXAMPLES) % len(example)].cpu()
    if is_teachers(path):
        build = None if own.net is None else partial(unlike, own.net)
        # `Teachers` packs all weights into shared storage; to be written to a file, each tensor needs its own.
        teachers = copied(Teachers(load_networks(runs, build, given)).eval())
        return Answering(runs, teachers, log_mean_probabilities, example, about)
    served = served_by(runs[0], given, own)
    # For a single network, its own logits already have the same softmax.
    one = served.predict is log_mean_probabilities and not isinstance(served.network, Ensemble)
    return Answering(runs, served.network, None if one else served.predict, example, about)


def check_started(path: Path, runs: Sequence[RunFolder]) -> None:
    """Refuses a folder that is none of a run, naming the runs in it."""
    if runs[0].started or runs[0].finished:
        return
    inside = {file.parent for file in path.rglob("recipe.json")}
    near = sorted({run.parent if run.match("teacher-*") and is_teachers(run.parent) else run for run in inside})
    if not near:
        raise ValueError(f"{path} is not a run folder; give a run folder, or a folder of teachers")
    raise ValueError(f"{path} is not a run folder, but holds some; give one of them: {first_few(near)}")


def check_own(run: RunFolder, call: str, own: nn.Module | None) -> None:
    """Refuses a missing network if the user has to provide one, and one that does not match the run."""
    about, finished = run.about, run.finished  # an unfinished run is refused later, when it is read
    if "image_size" not in about and own is None and finished:
        raise ValueError(f"{run.path} was trained from Python, so its folder has only the weights; use {call}")
    if "image_size" in about and own is not None and not is_own(about["network"]):
        raise ValueError(
            f"net: expected none for {run.path}, got a {type(own).__name__}; its {about['network']} is built "
            "from what the folder records, including the mean and deviation that standardise inputs"
        )
    wanted = about.get("standardized")
    if own is not None and wanted is not None and standardized(own) != wanted:
        raise ValueError(
            f"net: expected inputs to be standardised as in the run, with {told(wanted)}, got "
            f"{told(standardized(own))}; these values are not among the weights"
        )


def told(standardized: list[list[list[float]]]) -> str:
    return " and ".join(f"mean {mean} and deviation {std}" for mean, std in standardized) or "no mean and deviation"


def drawn(about: dict[str, Any]) -> Tensor:
    """Random images in [0, 1], or features around their means: `[5, ...]`, the same each time."""
    statistics, size = about["statistics"], about["image_size"]
    shape = (EXAMPLES, *example_of(statistics, size).shape[1:])
    draws = torch.Generator().manual_seed(0)
    if len(size) == 2:
        return torch.rand(shape, generator=draws)
    mean, std = (torch.tensor(values) for values in statistics)
    return mean + std * torch.randn(shape, generator=draws)


def unlike(net: nn.Module, run: RunFolder) -> nn.Module:  # noqa: ARG001
    """A copy of the network for a run's weights to be loaded into."""
    return copy.deepcopy(net).cpu()


def copied(module: nn.Module) -> nn.Module:
    """A copy of the module in which every tensor has its own storage."""
    module = copy.deepcopy(module)
    for tensor in (*module.parameters(), *module.buffers()):
        tensor.data = tensor.data.clone()
    return module
