"""The end of a run: the best network, what it answers, and how good that is."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor, nn

from onefold.engine.checkpoint import load_network, save_network
from onefold.engine.evaluate import answers, metrics_of
from onefold.engine.keeper import Keeper
from onefold.engine.loop import Position
from onefold.engine.training import Training
from onefold.ensemble import Plain
from onefold.methods import AnyStudent, Method
from onefold.metrics import fit_temperature
from onefold.run import RunFolder


@dataclass(frozen=True, eq=False)
class Result:
    """What came out of a run.

    model: the network in evaluation mode; with LatentBE and plain students an ordinary one, of the class given.
    metrics: of the test split, calibrated on the validation split; of the validation split where it is alone.
    temperature: fitted on the validation split.
    folder: where everything lies, if it was kept.
    """

    model: nn.Module
    metrics: dict[str, float] = field(default_factory=dict)
    temperature: float | None = None
    folder: Path | None = None


def served_network(method: Method, student: AnyStudent) -> nn.Module:
    """The module that is deployed: an ordinary network, or a student that is asked member by member."""
    served = method.serve(student)
    if isinstance(served, Plain):
        return copy.deepcopy(served.net).eval()
    assert isinstance(served, nn.Module), "what is served has weights"
    return copy.deepcopy(served).eval()


def finish(training: Training, at: Position, keeper: Keeper) -> Result:
    """Writes the best network, its predictions and its metrics; result.json comes last and says that all is there."""
    if at.best is not None:
        keeper.load_best(at.best.step, training.evaluated)
    method = training.job.method
    served, network = method.serve(training.evaluated), served_network(method, training.evaluated)
    splits: dict[str, tuple[Tensor, Tensor]] = {}
    for split, loader in {"val": training.val, "test": training.test}.items():
        if loader is not None:
            splits[split] = answers(served, method.predict, loader)
    metrics = metrics_of(splits)
    temperature = fit_temperature(splits["val"][1], splits["val"][0]) if "val" in splits else None
    run = keeper.run
    if run is not None:
        save_network(run.model, network)
        for split, (labels, logits) in splits.items():
            run.write_predictions(split, labels.numpy(), logits.numpy())
        about = {"step": at.step, "epoch": training.job.settings.epochs}
        best = {} if at.best is None else {"best_step": at.best.step, "best_epoch": at.best.epoch}
        run.log({"kind": "result"} | about | best | metrics)
        record = about | best | {"seconds": at.seconds, "metrics": metrics, "temperature": temperature}
        record |= {"val": metrics_of({"val": splits["val"]})} if "val" in splits else {}
        run.write_json("result.json", record)
    return Result(network, metrics, temperature, None if run is None else run.path)


def finished_result(run: RunFolder, network: nn.Module) -> Result:
    """The result of a finished run; `network` is one of its architecture, whose weights are replaced."""
    load_network(run.model, network)
    record = run.result
    return Result(network.eval(), record["metrics"], record["temperature"], run.path)
