"""The end of a run: the best network, what it answers, and how good that is."""

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
from onefold.engine.layout import OUTERMOST, lay_out, layout_of
from onefold.engine.loop import Position
from onefold.engine.measure.store import Measurements, fingerprint
from onefold.engine.training import Training
from onefold.ensemble import BatchEnsemble, Plain
from onefold.methods import AnyStudent, Method
from onefold.metrics import fit_temperature, log_mean_probabilities
from onefold.run import RunFolder
from onefold.types import Ensemble, Prediction

IMAGES = 10_000  # of the training split, for statistics of the averaged network


@dataclass(frozen=True, eq=False)
class Result:
    """What came out of a run.

    model: the network in evaluation mode; with LatentBE and plain students an ordinary one, of the class given.
    metrics: of the test split, calibrated on the validation split; of the validation split where it is alone.
    temperature: fitted on the validation split.
    folder: where everything lies, if it was kept.
    predict: the one answer, from the model's logits: what the metrics are of. `onefold.evaluate` and
        `onefold.calibrated` take it from a result.
    """

    model: nn.Module
    metrics: dict[str, float] = field(default_factory=dict)
    temperature: float | None = None
    folder: Path | None = None
    predict: Prediction = log_mean_probabilities


def served_network(method: Method, student: AnyStudent, given: nn.Module | None = None) -> nn.Module:
    """The module that is deployed: an ordinary network, or a student that is asked member by member. Its weights lie in
    memory as those of the network that was given, or else contiguous, as other libraries write them to a file."""
    served = method.serve(student)
    inner = served.net if isinstance(served, Plain) else served
    assert isinstance(inner, nn.Module), "what is served has weights"
    network = copy.deepcopy(inner).eval()
    lay_out(network, OUTERMOST if given is None else layout_of(given))
    return network


def finish(training: Training, at: Position, keeper: Keeper) -> Result:
    """Writes the best network, its predictions and its metrics; result.json comes last and says that all is there."""
    if at.best is not None:
        keeper.load_best(at.best.step, training.evaluated)
    method, world = training.job.method, training.job.world
    served, network = method.serve(training.evaluated), served_network(method, training.evaluated, training.job.net)
    splits: dict[str, tuple[Tensor, Tensor]] = {}  # empty in all processes but the first
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
    """The metrics and the temperature, written down with the network and its predictions where there is a folder."""
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
        run.write_json("result.json", record | {"weights": weights_hash(network)})  # by which its students know it
    return metrics, temperature


def health_of(training: Training, served: Ensemble) -> dict[str, Any] | None:
    """Whether averaging hurts, where an average of members is what is served: on the validation split, or the test
    split of who has no other, or what was learnt from."""
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
    # Statistics are those of images as training sees them: networks that know crops with black borders and mirrored
    # images do badly with the statistics of whole ones.
    seen = None if some is None else loader_for(some, job.settings.optim.batch_size, train=True, **place)
    inputs = None if seen is None else (x for x, _ in seen.batches())
    # Training images are gone through by each of several processes, whole.
    found = averaging_health(student, loader, inputs, training.classes, ALONE if split == "train" else job.world)
    found |= {"split": split, "warning": warning_of(found, split)}
    if found["warning"] is not None:
        job.say(found["warning"])
    return found


def finished_result(run: RunFolder, method: Method, network: nn.Module, world: World = ALONE) -> Result:
    """The result of a method's finished run; `network` is one of its architecture, whose weights are replaced."""

    def read() -> tuple[dict[str, Tensor], dict[str, Any]]:
        load_network(run.model, network)
        return dict(network.state_dict()), run.result

    weights, record = world.first(read)
    network.load_state_dict(weights)
    return Result(network.eval(), record["metrics"], record["temperature"], run.path, method.predict)
