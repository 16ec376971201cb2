"""The whole thing from Python, with networks, data, optimizers and schedulers of your own."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from onefold.data import Arrays, Augmentation, CropFlip, Loader, Split, as_split, loader_for
from onefold.data.examples import first_dtype
from onefold.data.trace import trace
from onefold.engine import Job, Progress, Result, Settings, conduct
from onefold.engine.device import device_named, placed
from onefold.engine.distributed import World, device_here, rank_here, world_here
from onefold.engine.distributed.plan import spreads
from onefold.engine.distributed.processes import Processes
from onefold.engine.distributed.spread import SpreadTeachers, own_teachers
from onefold.engine.evaluate import answered, streamed
from onefold.engine.keeping.event_files import check_log
from onefold.engine.kept import kept
from onefold.engine.loop import ODD, refuse_inputs
from onefold.engine.optim.factories import OptimizerFactory, SchedulerFactory
from onefold.engine.preflight import blaming_types, check_finite_inputs
from onefold.engine.progress import LOG, listening, noting
from onefold.ensemble import BatchEnsemble, Plain, Teachers
from onefold.methods import Method, Perturbing, method_named, own_perturbation, perturbation_named
from onefold.metrics import calibrated as divided
from onefold.metrics import fit_temperature, log_mean_probabilities, warning_of_temperature
from onefold.names import check_pair
from onefold.perturb import PIXELS, InputSpace
from onefold.recipe import OptimRecipe
from onefold.run import RunFolder
from onefold.types import Ensemble, Prediction

WARMUP = 5.0  # epochs


def distill(
    teachers: Teachers | Sequence[nn.Module] | nn.ModuleList | None,
    net: nn.Module,
    train: object,
    *,
    val: object = None,
    test: object = None,
    method: str | Method = "latentbe",
    perturbation: str | Perturbing | None = None,
    epochs: int = 200,
    temperature: float = 4.0,
    alpha: float = 1.0,
    cap: float = 0.6,
    lr: float | None = None,
    momentum: float = 0.9,
    weight_decay: float | None = None,
    batch_size: int | None = None,
    drop_last: bool = False,
    warmup_epochs: float | None = None,
    label_smoothing: float = 0.0,
    seed: int = 0,
    augment: bool | Augmentation = False,
    space: InputSpace = PIXELS,
    optimizer: OptimizerFactory | None = None,
    scheduler: SchedulerFactory | None = None,
    clip: float | None = None,
    accumulate: int = 1,
    ema: float | None = None,
    precision: str = "auto",
    fast: bool = True,
    compile: bool = False,
    eval_every: int = 1,
    eval_last: int = 1,
    diversity_every: int | None = None,
    workers: int | None = None,
    device: str | torch.device = "auto",
    spread_teachers: bool | None = None,
    out: Path | str | None = None,
    log: str | None = None,
    progress: Progress | bool | None = None,
) -> Result:
    """Teachers become one network: `result.model`, of the class of `net` and with its keys. `net` stays as it is.

    Args:
        teachers: trained networks, of any architectures; None for the method "supervised", which makes a teacher.
        net: the student's network; its weights are where training starts. What it draws in `forward` comes from `seed`
            if torch draws it.
        train, val, test: a `Dataset` of (image, label), a `DataLoader`, or a pair of tensors (x, y). With `val` the
            best epoch is served and a temperature fitted; `test` is what the metrics are of.
        method: "latentbe" (each member learns one teacher, and their average is served), "be" (the members are served,
            each in a pass of its own), "kd" (the network learns the teachers' mean), "aekd" (their mean, weighted for
            each example), "proxy-end2" (how much they disagree, too), "supervised" (the labels alone), or a `Method`.
        perturbation: what is done to inputs before teachers and student are asked: "none", "gaussian" (noise), "ods" (a
            step that changes a teacher's answer in a random way), "confods" (a shorter one where that teacher is less
            sure), "tdiv" (a step to where two teachers disagree), "tdiv-sdiv" (and the student's members do not yet),
            or a `Perturbing` of `onefold.methods`. If nothing is said, "tdiv-sdiv" for a student with members and at
            least two teachers, else "none".
        epochs: how often `train` is gone through.
        temperature: tau, by which the logits of teachers and student are divided in the loss; the one that is fitted on
            `val` is another.
        alpha: share of the teachers in the loss, the rest being the labels'; "proxy-end2" has no labels.
        cap: largest weight of one teacher in "aekd", from 1/M to 1.
        lr, weight_decay: 0.1 and 5e-4; with an `optimizer` of your own those that it is made with, or 5e-4 where it has
            no decay.
        momentum: of SGD, where there is no `optimizer` of your own.
        batch_size: 128, or that of a `DataLoader`.
        drop_last: leave out the last batch of an epoch where it is not full.
        warmup_epochs: in which the rate rises from a hundredth; 5, or a tenth of the epochs where that is less.
        label_smoothing: share of a label that is spread over all classes, in "supervised".
        seed: what the order of examples, crops, members' factors and perturbations are drawn from.
        augment: random crops and flips of uint8 images; a Dataset may bring its own transforms.
        space: where perturbed inputs live, if they are not images in [0, 1]: `InputSpace.standardized(mean, std)` for
            images that were normalised, `InputSpace.of(x)` for features.
        optimizer: makes an optimizer of parameter groups, e.g. `lambda groups: AdamW(groups, lr=1e-3)`; SGD with
            Nesterov momentum if left out. It may be called twice. The groups carry `lr` and `weight_decay`: members'
            factors have rates of their own.
        scheduler: makes a scheduler of the optimizer, stepped once a step and never by the epoch; warm-up and cosine
            if left out. ReduceLROnPlateau is stepped after every evaluation, with the NLL of `val`, or with its
            accuracy in mode "max".
        clip: largest norm of the gradient; if left out, any.
        accumulate: parts a batch is worked through in, where it does not fit at once.
        ema: decay of a moving average of the weights, which is then what is evaluated and served.
        precision: "float32", "bf16" (autocast), or "auto": bf16 on a GPU that has it.
        fast: on a GPU, run the networks in few kernels and the step in one CUDA graph; what cannot be done so runs as
            it is, and says so.
        compile: compile the step with torch.compile, which takes the place of the few kernels of `fast`.
        eval_every: epochs between two evaluations on `val`.
        eval_last: epochs at the end that are evaluated each.
        diversity_every: epochs between two looks at the members' diversity, which go into the log of `out`; 0 for none,
            and if nothing is said, as often as costs little.
        workers: processes that read a Dataset; one a core, at most 8, if nothing is said.
        device: "auto" (a GPU where there is one), "cpu", "cuda" or "cuda:N".
        spread_teachers: under torchrun, whether each process holds some of the teachers only; if nothing is said, where
            all of them do not fit. `batch_size` is that of all processes together.
        out: a run folder. The same call goes on from what is there; one with other settings, data or teachers is
            refused. The weights of `net` are those of the folder from then on: a script that makes `net` anew, with
            other random numbers each time, goes on where it was stopped. To begin with other weights, pre-trained
            ones say, choose another folder.
        log: "tensorboard" for event files in `out/tensorboard`.
        progress: True for what the command line shows, on stderr: a bar on a terminal, a line every ten seconds
            elsewhere; False for nothing; if nothing is said, True at a terminal or in a notebook. The logger "onefold"
            has a line for each epoch (`logging.basicConfig(level=logging.INFO)`, which then takes the bar's place)
            and, where nothing is shown, warns of what may be a mistake. An object of your own has
            `update(done, total, loss, lr, rate)` and `message(text)`.
    """
    check_log(log, out)
    check_progress(progress)
    method = method_named(method)
    perturbation = None if perturbation is None else perturbation_named(perturbation)
    if not isinstance(net, nn.Module):
        raise ValueError(f"net: expected a torch.nn.Module, got {type(net).__name__}")
    asked = given_teachers(teachers, method)
    members = 1 if asked is None else asked.members
    perturbation = perturbation or own_perturbation(method, members)
    check_pair(method, perturbation, members)
    splits: dict[str, Split | None] = {
        name: None if split is None else as_split(split, name)
        for name, split in {"train": train, "val": val, "test": test}.items()
    }
    if splits["train"] is None:
        raise ValueError("train: expected a Dataset, a DataLoader or a pair of tensors (x, y), got None")
    world = world_here()
    place = device_here(device, world)
    warmup = min(WARMUP, epochs / 10) if warmup_epochs is None else warmup_epochs
    rates = {"lr": lr, "weight_decay": weight_decay}
    optim = OptimRecipe(
        **{name: rate for name, rate in rates.items() if rate is not None},
        momentum=momentum,
        batch_size=batch_size_for(splits["train"], batch_size, world),
        warmup_epochs=warmup,
        drop_last=drop_last,
        clip=clip,
        accumulate=accumulate,
        label_smoothing=label_smoothing,
        ema=ema,
    )
    settings = Settings(
        epochs=epochs,
        seed=seed,
        optim=optim,
        alpha=alpha,
        temperature=temperature,
        cap=cap,
        precision=precision,
        fast=fast,
        compile=compile,
        eval_every=eval_every,
        eval_last=eval_last,
        diversity_every=diversity_every,
    )
    crops = (CropFlip() if augment else None) if isinstance(augment, bool) else augment
    if crops is not None:
        check_crops(crops, splits["train"])
    for name, asked_for in {"augment": crops, "drop_last": drop_last}.items():
        if asked_for and isinstance(splits["train"], DataLoader):
            raise ValueError(
                f"{name}: expected none beside a DataLoader, which makes its batches by itself; give the Dataset "
                "instead of the DataLoader"
            )
    job = Job(
        method=method,
        perturbation=perturbation,
        net=net,
        teachers=placed_teachers(asked, spread_teachers, place, world),
        train=splits["train"],
        val=splits["val"],
        test=splits["test"],
        settings=settings,
        device=place,
        augment=crops,
        space=space,
        workers=workers,
        optimizer=optimizer,
        unsaid=() if optimizer is None else tuple(name for name, rate in rates.items() if rate is None),
        scheduler=scheduler,
        world=world,
    )
    about = {"kind": "python", "taught_by": 0 if asked is None else asked.members}
    title = method.name if perturbation.name == "none" else f"{method.name}-{perturbation.name}"
    with showing(progress, title, world.rank) as listener:
        result = conduct(job, None if out is None else RunFolder(out), record(job), about, listener, log)
        if (warning := warning_of_temperature(result.temperature)) is not None:
            noting(listening(listener, world.rank))(warning)
    return result


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


def batch_size_for(train: Split, given: int | None, world: World) -> int:
    """Over all processes; a `DataLoader` makes its batches by itself, in each of them."""
    own = train.batch_size if isinstance(train, DataLoader) else None
    if own is None:
        return OptimRecipe.batch_size if given is None else given
    if given not in (None, own * world.size):
        raise ValueError(
            f"batch_size: expected none beside a DataLoader, which has batches of {own}, got {given}; leave it out, or "
            "give the Dataset instead of the DataLoader"
        )
    return own * world.size


def check_crops(crops: Augmentation, train: Split) -> None:
    """Refuses crops that would not happen: those of `CropFlip` are of pixels alone."""
    if isinstance(train, DataLoader) or not (isinstance(train, Arrays) or isinstance(crops, CropFlip)):
        return
    found = first_dtype(train)
    if found is not None and found.is_floating_point:
        raise ValueError(
            f"augment: expected uint8 images to crop and flip, got {found}; give uint8, or a Dataset with transforms "
            "of its own"
        )


def check_progress(progress: object) -> None:
    if not isinstance(progress, bool | None) and not (hasattr(progress, "update") and hasattr(progress, "message")):
        raise ValueError(
            f"progress: expected True, False, None or an object with update and message, got {type(progress).__name__}"
        )


@contextlib.contextmanager
def showing(progress: Progress | bool | None, title: str, rank: int) -> Iterator[Progress | None]:
    """Who is told how far a run is; None for the log alone."""
    if not isinstance(progress, bool | None):
        yield progress
        return
    logged = LOG.isEnabledFor(logging.INFO) and LOG.hasHandlers()
    if rank or progress is False or (progress is None and logged):
        yield None
        return
    drawn = random.getstate()
    from onefold.terminal import attended, display

    random.setstate(drawn)  # rich, when it is loaded, draws from the numbers that the user's data may draw from
    if progress is None and not attended():
        yield None
        return
    with display() as shown:
        yield shown.stage(title)


def as_ensemble(module: nn.Module) -> Ensemble:
    """A module as one that answers `[M, B, K]` in evaluation mode; its own modes are left alone."""
    if isinstance(module, Teachers):
        return module
    return module.at_rest if isinstance(module, BatchEnsemble | Plain) else Plain(module).at_rest


def given_teachers(teachers: Teachers | Sequence[nn.Module] | nn.ModuleList | None, method: Method) -> Teachers | None:
    """The teachers that the method asks, if it asks any."""
    if not method.needs_teachers:
        if teachers is not None:
            raise ValueError(
                f"teachers: expected None for '{method.name}', which asks none, got {type(teachers).__name__}; give "
                "None, or a method that learns from them, such as 'latentbe'"
            )
        return None
    if teachers is None:
        raise ValueError(f"teachers: '{method.name}' needs them, got None; give trained networks, or onefold.Teachers")
    if (found := as_teachers(teachers)) is None:
        raise ValueError(f"teachers: expected Teachers or a list of networks, got {type(teachers).__name__}")
    return found


def as_teachers(networks: object) -> Teachers | None:
    """Several networks as teachers; None for what is no list of any."""
    if isinstance(networks, Teachers):
        return networks
    if isinstance(networks, str) or not isinstance(networks, Sequence | nn.ModuleList):
        return None
    return Teachers(list(networks))


def placed_teachers(
    teachers: Teachers | None, spread: bool | None, device: torch.device, world: World
) -> Teachers | SpreadTeachers | None:
    """The teachers, or those of them that this process is to hold."""
    if teachers is None or not isinstance(world, Processes):
        return teachers
    wanted = "auto" if spread is None else "spread" if spread else "replicated"
    needed = sum(value.nbytes for value in teachers.state_dict().values())
    if not spreads(wanted, teachers.members, needed, device, world)[0]:
        return teachers
    own = own_teachers(teachers.members, world.rank, world.size)
    networks = [network for m, network in enumerate(teachers.networks) if m in own]
    return SpreadTeachers(networks, teachers.members, world)


def record(job: Job) -> dict[str, Any]:
    """What can be said about a run that no recipe describes."""
    described: dict[str, Any] = {"source": "python", "network": type(job.net).__name__}
    described |= dataclasses.asdict(job.settings)
    described["optim"] |= dict.fromkeys(job.unsaid)  # run.json has what the optimizer decided
    if isinstance(job.train, DataLoader):  # its batches are its own, and never were recorded here
        described["optim"]["batch_size"] = OptimRecipe.batch_size
    splits = {"train": job.train, "val": job.val, "test": job.test}
    described["splits"] = {name: None if split is None else trace(split) for name, split in splits.items()}
    return described | {"augment": repr(job.augment), "space": job.space.described, "device": str(job.device)}
