"""Training from Python, with networks, data, optimizers and schedulers of your own."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from onefold.api.given import batch_size_for, check_crops, given_teachers, placed_teachers
from onefold.api.listeners import check_progress, showing
from onefold.data import Augmentation, CropFlip, Split, as_split
from onefold.data.trace import trace
from onefold.engine import Job, Progress, Result, Settings, conduct
from onefold.engine.distributed import device_here, world_here
from onefold.engine.keeping.event_files import check_log
from onefold.engine.optim.factories import OptimizerFactory, SchedulerFactory
from onefold.engine.progress import listening, noting
from onefold.ensemble import Teachers
from onefold.methods import Method, Perturbing, method_named, own_perturbation, perturbation_named
from onefold.metrics import warning_of_temperature
from onefold.names import check_pair
from onefold.perturb import PIXELS, InputSpace
from onefold.recipe import OptimRecipe
from onefold.run import RunFolder

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
            best epoch is served and a temperature fitted; without, the last epoch is served and there is no
            temperature. `test` is what the metrics are of.
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
        fast: use a faster memory layout (channels innermost), on a CPU, too; on a GPU also run the networks in few
            kernels and the step in one CUDA graph. What cannot be done so runs as it is, and says so.
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
