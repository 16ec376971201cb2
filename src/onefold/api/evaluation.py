"""Evaluation and calibration of networks, teachers and results."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from onefold.api.given import as_teachers
from onefold.data import Loader, Split, as_split, loader_for
from onefold.engine import Result
from onefold.engine.blame import blaming_types
from onefold.engine.device import device_named, placed
from onefold.engine.distributed import rank_here
from onefold.engine.evaluate import answered, streamed
from onefold.engine.kept import kept
from onefold.engine.loop import ODD, refuse_inputs
from onefold.engine.preflight import check_finite_inputs
from onefold.engine.progress import LOG
from onefold.ensemble import BatchEnsemble, Plain, Teachers
from onefold.ensemble.usable import check_one_input
from onefold.metrics import calibrated as divided
from onefold.metrics import fit_temperature, log_mean_probabilities, warning_of_temperature
from onefold.types import Ensemble, Prediction


def evaluate(
    model: nn.Module | Sequence[nn.Module] | Result,
    test: object,
    calibrate_on: object = None,
    batch_size: int = 512,
    device: str | torch.device = "auto",
    *,
    predict: Prediction | None = None,
    workers: int | None = None,
) -> dict[str, float]:
    """Accuracy, likelihood and calibration on `test`: {"acc", "nll", "ece", "brier", ...}.

    Args:
        model: a result of `distill`, a network, a student, or teachers: `Teachers`, or a list of networks.
        test: a `Dataset` of (image, label), a `DataLoader`, or a pair of tensors (x, y).
        calibrate_on: validation data, in any of the same forms. If given, the metrics also contain the "temperature"
            fitted on it, and the "cnll" and "cece" of `test` at that temperature.
        batch_size: examples per forward pass; a `DataLoader` has its own.
        device: "auto" (a GPU if there is one), "cpu", "cuda" or "cuda:N". The model is moved there and back.
        predict: turns logits `[M, B, K]` into one prediction. By default that of the result's method; for anything else
            the softmax, averaged over the members of teachers and batch ensembles. If you pass only the network of a
            Proxy-EnD2 student, give `onefold.objectives.dirichlet_mean`.
        workers: processes that load a Dataset; by default one per core, at most 8.
    """
    if isinstance(model, Result):
        predict, model = model.predict if predict is None else predict, model.model
    predict = log_mean_probabilities if predict is None else predict
    module = as_teachers(model) or model
    if not isinstance(module, nn.Module):
        raise ValueError(f"model: expected a network, teachers or a student, got {type(module).__name__}")
    check_one_input("model", module)
    place = device_named(device)
    splits = {"test": as_split(test, "test")}
    if calibrate_on is not None:
        splits["calibrate_on"] = as_split(calibrate_on, "calibrate_on")
    options: dict[str, Any] = {"train": False, "device": place, "workers": workers}
    loaders = {name: loader_for(split, batch_size, **options) for name, split in splits.items()}
    with placed(module, place), blaming_types(module, loaders), blaming_inputs(splits, loaders):
        ensemble = as_ensemble(module)
        temperature: float | None = None
        if calibrate_on is not None:
            labels, logits = kept(answered(ensemble, predict, loaders["calibrate_on"]))
            if not len(labels):
                raise ValueError("calibrate_on: expected at least one example, got none; give some, or leave it out")
            temperature = fit_temperature(logits, labels)
        metrics = streamed(answered(ensemble, predict, loaders["test"]), temperature)
    if (warning := warning_of_temperature(temperature, metrics)) is not None and rank_here() == 0:
        LOG.warning(warning)
    return metrics


def calibrated(
    model: nn.Module | Result,
    temperature: float | None = None,
    example: Tensor | None = None,
    *,
    predict: Prediction | None = None,
) -> nn.Module:
    """A copy of a model that returns logits / T `[B, K]`; the model itself is left unchanged.

    If the network's output is certain to be the output of its last `nn.Linear`, that layer's weight and bias are
    divided by T, and the copy has the model's class, state dict keys and form of output. It is certain if a symbolic
    trace of the forward pass shows it or, for a network that cannot be traced, as most of transformers, if on the
    `example` the network returns the very tensor that the layer returned. Otherwise the copy is wrapped in a module
    that divides.

    Args:
        model: a result of `distill`, a network, a student, or `Teachers`. For models with members, the logits are the
            log of the mean of their softmaxes; that is also what their temperature is fitted to.
        temperature: T; by default that of the result.
        example: a batch of inputs, on which a network whose last layer was divided is also compared with the model.
        predict: turns logits `[M, B, K]` into one prediction, as in `onefold.evaluate`; by default that of the result.
    """
    if isinstance(model, Result):
        temperature = model.temperature if temperature is None else temperature
        if predict is None and model.predict is not log_mean_probabilities:  # which one network's logits do not need
            predict = model.predict
        model = model.model
    return divided(model, temperature, example, predict=predict)


@contextlib.contextmanager
def blaming_inputs(splits: dict[str, Split], loaders: dict[str, Loader]) -> Iterator[None]:
    """If the outputs are refused, checks whether non-finite inputs are the cause before blaming the network."""
    try:
        yield
    except ValueError:
        for name, loader in loaders.items():
            check_finite_inputs(name, splits[name])
            refuse_inputs(f"{name}: expected finite inputs, got {ODD} values", (x for x, _ in loader.batches()))
        raise


def as_ensemble(module: nn.Module) -> Ensemble:
    """Wraps a module so that it returns `[M, B, K]` in evaluation mode, without changing the module's own mode."""
    if isinstance(module, Teachers):
        return module
    return module.at_rest if isinstance(module, BatchEnsemble | Plain) else Plain(module).at_rest
