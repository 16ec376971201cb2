"""The end of a run: the best network, its predictions and its metrics."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from onefold.data import loader_for
from onefold.data.sample import sample
from onefold.engine.averaging import averaging_health, warning_of
from onefold.engine.distributed.world import ALONE, World
from onefold.engine.evaluate import answers_of_all, metrics_of
from onefold.engine.keeping.checkpoint import load_network, save_network, weights_hash
from onefold.engine.keeping.keeper import Keeper
from onefold.engine.layout import Strides, restore, strides_of
from onefold.engine.loop import Position
from onefold.engine.measure.store import Measurements, fingerprint
from onefold.engine.training import Training
from onefold.ensemble import BatchEnsemble, Plain
from onefold.methods import AnyStudent, Method
from onefold.metrics import fit_temperature, log_mean_probabilities
from onefold.run import RunFolder
from onefold.types import Ensemble, Prediction

IMAGES = 10_000  # training images for re-estimating the averaged network's BatchNorm statistics


@dataclass(frozen=True, eq=False)
class Result:
    """The result of a run.

    model: the network in evaluation mode; for LatentBE and plain students an ordinary network of the original class.
    metrics: on the test split, calibrated on the validation split; without a test split, on the validation split.
    temperature: fitted on the validation split; None without one.
    folder: the run folder; None if nothing was written.
    predict: turns the model's logits into the prediction that the metrics are about. `onefold.evaluate` and
        `onefold.calibrated` take it from a result.
    """

    model: nn.Module
    metrics: dict[str, float] = field(default_factory=dict)
    temperature: float | None = None
    folder: Path | None = None
    predict: Prediction = log_mean_probabilities


def served_network(method: Method, student: AnyStudent, strides: Strides | None = None) -> nn.Module:
    """The module that is deployed: an ordinary network, or a student with members. Its convolution weights have the
    `strides` recorded before training; by default the student was not trained, and they stay as they are."""
    served = method.serve(student)
    inner = served.net if isinstance(served, Plain) else served
    assert isinstance(inner, nn.Module), "what is served has weights"
    network = copy.deepcopy(inner).eval()
    before = strides_of(student.net) if strides is None else strides
    restore(network.net if isinstance(network, BatchEnsemble) else network, before)
    return network


def finish(training: Training, at: Position, keeper: Keeper) -> Result:
    """Writes the best network, its predictions and metrics. result.json comes last: it marks the run as finished."""
    if at.best is not None:
        keeper.load_best(at.best.step, training.evaluated)
    method, world = training.job.method, training.job.world
    served, network = method.serve(training.evaluated), served_network(method, training.evaluated, training.strides)
    splits: dict[str, tuple[Tensor, Tensor]] = {}  # filled in the first process only
    for split, loader in {"val": training.val, "test": training.test}.items():
        found = None if loader is None else answers_of_all(served, method.predict, loader, world)
        if found is not None:
            splits[split] = found
    health = health_of(training, served)
    metrics, temperature = world.first(lambda: keep(training, at, keeper.run, network, splits, health))
    return Result(network, metrics, temperature, None if keeper.run is None else keeper.run.path, method.predict)


def keep(
    training: Training,
    at: Position,
    run: RunFolder | None,
    network: nn.Module,
    splits: dict[str, tuple[Tensor, Tensor]],
    health: dict[str, Any] | None = None,
) -> tuple[dict[str, float], float | None]:
    """Computes the metrics and the temperature; with a run folder, writes them, the network and its predictions."""
    metrics = metrics_of(splits)
    temperature = fit_temperature(splits["val"][1], splits["val"][0]) if "val" in splits else None
    if run is not None:
        save_network(run.model, network)
        if health is not None:
            Measurements(run.path, fingerprint([run.model])).write("health", health)
        for split, (labels, logits) in splits.items():
            run.write_predictions(split, labels.numpy(), logits.numpy())
        about = {"step": at.step, "epoch": training.job.settings.epochs}
        best = {} if at.best is None else {"best_step": at.best.step, "best_epoch": at.best.epoch}
        run.log({"kind": "result"} | about | best | metrics)
        record = about | best | {"seconds": at.seconds, "metrics": metrics, "temperature": temperature}
        record |= {"val": metrics_of({"val": splits["val"]})} if "val" in splits else {}
        run.write_json("result.json", record | {"weights": weights_hash(network)})  # students identify it by this
    return metrics, temperature


def health_of(training: Training, served: Ensemble) -> dict[str, Any] | None:
    """Whether averaging hurts, if the average of members is what is served. Measured on the validation split, or else
    the test split, or else training images."""
    student, job = training.evaluated, training.job
    if not isinstance(student, BatchEnsemble) or student.members < 2 or served.members > 1:
        return None
    some = sample(job.train, IMAGES)
    place: dict[str, Any] = {"augment": job.augment, "device": job.device, "workers": job.workers}
    train = None if some is None else loader_for(some, job.settings.optim.batch_size, train=False, **place)
    splits = {"val": training.val, "test": training.test, "train": train}
    split, loader = next(((name, of) for name, of in splits.items() if of is not None), ("", None))
    if loader is None:
        return None
    # Statistics come from augmented images: networks trained on padded crops and mirrored images do badly with the
    # statistics of plain ones.
    seen = None if some is None else loader_for(some, job.settings.optim.batch_size, train=True, **place)
    inputs = None if seen is None else (x for x, _ in seen.batches())
    # Each of several processes goes through all the training images by itself.
    found = averaging_health(student, loader, inputs, training.classes, ALONE if split == "train" else job.world)
    found |= {"split": split, "warning": warning_of(found, split, python=not job.known)}
    if found["warning"] is not None:
        job.say(found["warning"])
    return found


def finished_result(run: RunFolder, method: Method, network: nn.Module, world: World = ALONE) -> Result:
    """The result of a method's finished run. The run's weights are loaded into `network`, of the same architecture."""

    def read() -> tuple[dict[str, Tensor], dict[str, Any]]:
        load_network(run.model, network)
        return dict(network.state_dict()), run.result

    weights, record = world.first(read)
    network.load_state_dict(weights)
    return Result(network.eval(), record["metrics"], record["temperature"], run.path, method.predict)
