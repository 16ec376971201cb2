"""What networks, teachers and results answer, and how good that is."""

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
        calibrate_on: validation data, likewise. With them the answer also has the "temperature" fitted there, and
            "cnll" and "cece" of `test` at it.
        batch_size: of examples that are asked about at once; a `DataLoader` has its own.
        device: "auto" (a GPU where there is one), "cpu", "cuda" or "cuda:N". The model goes there, and back.
        predict: the one answer, from logits `[M, B, K]`. If left out that of a result's method; else the softmax, of
            teachers and batch ensembles the mean of their members'. Where only the network of a Proxy-EnD2 student is
            given, it is `onefold.objectives.dirichlet_mean`.
        workers: processes that read a Dataset; one a core, at most 8, if nothing is said.
    """
    if isinstance(model, Result):
        predict, model = model.predict if predict is None else predict, model.model
    predict = log_mean_probabilities if predict is None else predict
    module = as_teachers(model) or model
    if not isinstance(module, nn.Module):
        raise ValueError(f"model: expected a network, teachers or a student, got {type(module).__name__}")
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
            if (warning := warning_of_temperature(temperature)) is not None and rank_here() == 0:
                LOG.warning(warning)
        return streamed(answered(ensemble, predict, loaders["test"]), temperature)


def calibrated(
    model: nn.Module | Result,
    temperature: float | None = None,
    example: Tensor | None = None,
    *,
    predict: Prediction | None = None,
) -> nn.Module:
    """A copy of a model that answers logits / T `[B, K]`; the model itself is left as it is.

    Where a network's answer certainly is what its last `nn.Linear` gives, that layer's weight and bias are divided by
    T, and the copy has the model's class and state dict keys. It is certain when a symbolic trace of the forward pass
    says so, or, for a network that cannot be traced, when on the `example` the network returns the very tensor that
    the layer made. Otherwise the copy comes inside a module that divides.

    Args:
        model: a result of `distill`, a network, a student, or `Teachers`. Of those with members the logits are the log
            of the mean of their softmax, to which their temperature is fitted.
        temperature: T; if left out, that of the result.
        example: a batch of inputs, on which a network with a divided layer is compared with the model, too.
        predict: the one answer, from logits `[M, B, K]`, as in `onefold.evaluate`; if left out, that of the result.
    """
    if isinstance(model, Result):
        temperature = model.temperature if temperature is None else temperature
        if predict is None and model.predict is not log_mean_probabilities:  # what one network's logits are without
            predict = model.predict
        model = model.model
    return divided(model, temperature, example, predict=predict)


@contextlib.contextmanager
def blaming_inputs(splits: dict[str, Split], loaders: dict[str, Loader]) -> Iterator[None]:
    """Where answers are refused, inputs that are not finite are blamed before the network."""
    try:
        yield
    except ValueError:
        for name, loader in loaders.items():
            check_finite_inputs(name, splits[name])
            refuse_inputs(f"{name}: expected finite inputs, got {ODD} values", (x for x, _ in loader.batches()))
        raise


def as_ensemble(module: nn.Module) -> Ensemble:
    """A module as one that answers `[M, B, K]` in evaluation mode; its own modes are left alone."""
    if isinstance(module, Teachers):
        return module
    return module.at_rest if isinstance(module, BatchEnsemble | Plain) else Plain(module).at_rest
