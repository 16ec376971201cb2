"""Training from Python, with networks, data, optimizers and schedulers of your own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from onefold.api.given import batch_size_for, check_crops, given_teachers, placed_teachers
from onefold.api.listeners import check_progress, showing
from onefold.data import Augmentation, CropFlip, Split, as_split
from onefold.data.preprocessing import preprocessing
from onefold.data.trace import glance, trace
from onefold.engine import Job, Progress, Result, Settings, conduct
from onefold.engine.distributed import device_here, world_here
from onefold.engine.keeping.event_files import check_log
from onefold.engine.optim.factories import OptimizerFactory, SchedulerFactory
from onefold.engine.progress import listening, noting
from onefold.ensemble import Teachers
from onefold.ensemble.usable import check_not_compiled, check_one_input
from onefold.methods import Method, Perturbing, check_taken, method_named, own_perturbation, perturbation_named
from onefold.metrics import warning_of_temperature
from onefold.names import check_pair
from onefold.perturb import PIXELS, InputSpace
from onefold.perturb.space import check_is_space
from onefold.recipe import DistillRecipe, OptimRecipe
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
    perturbation: str | Perturbing | Callable[..., Tensor] | None = None,
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
    """Distils teachers into one network: `result.model`, with the class and state dict keys of `net`, which is left
    unchanged.

    Args:
        teachers: trained networks, of any architectures; None for the method "supervised", which trains a teacher.
        net: the student's network; training starts from its weights. Random numbers that it draws from torch in
            `forward` depend on `seed`.
        train, val, test: a `Dataset` of (image, label), a `DataLoader`, or a pair of tensors (x, y). With `val`, the
            best epoch is served and a temperature is fitted; without it, the last epoch is served, with no
            temperature. The metrics are measured on `test`.
        method: "latentbe" (each member learns from one teacher; the average of the members is served), "be" (the
            members are served, one pass each), "kd" (the network learns the teachers' mean prediction), "aekd" (their
            mean, weighted per example), "proxy-end2" (also learns how much they disagree), "supervised" (labels only),
            or a `Method`.
        perturbation: what is done to the inputs before they go to teachers and student: "none", "gaussian" (noise),
            "ods" (a step that changes a teacher's output in a random direction), "confods" (a shorter step where that
            teacher is less confident), "tdiv" (a step to where two teachers disagree), "tdiv-sdiv" (to where they
            disagree and the student's members do not yet), a `Perturbing` from `onefold.methods`, or a function
            of inputs, teachers and student. By default "tdiv-sdiv" if the student has members and there are at least
            two teachers, else "none".
        epochs: number of passes over `train`.
        temperature: tau, which divides the logits of teachers and student in the loss; unrelated to the temperature
            that is fitted on `val`.
        alpha: weight of the teachers' loss; the labels' loss gets 1 - alpha. "proxy-end2" does not use labels.
        cap: largest weight of any one teacher in "aekd", from 1/M to 1.
        lr, weight_decay: by default 0.1 and 5e-4; with an `optimizer` of your own, by default the values it sets, or
            5e-4 if it has no weight decay.
        momentum: momentum of SGD, if you give no `optimizer` of your own.
        batch_size: by default 128, or that of the `DataLoader`.
        drop_last: drop the last batch of an epoch if it is not full.
        warmup_epochs: epochs over which the learning rate rises from a hundredth of its value; by default 5, or a tenth
            of the epochs if that is less.
        label_smoothing: share of each label that is spread over all classes, in "supervised".
        seed: determines the order of examples, crops, members' factors and perturbations; also what a `DataLoader`'s
            samplers and transforms draw with torch, whatever the seed of its own generator.
        augment: random crops and flips of uint8 images; a Dataset may bring its own transforms.
        space: the range of valid inputs, if they are not images in [0, 1]: `InputSpace.standardized(mean, std)` for
            normalised images, `InputSpace.of(x)` for features.
        optimizer: a function from parameter groups to an optimizer, e.g. `lambda groups: AdamW(groups, lr=1e-3)`; by
            default SGD with Nesterov momentum. It may be called several times, also with a copy of the weights, on
            which a step is tried; the last optimizer is the one that trains. The groups carry `lr` and `weight_decay`,
            because members' factors have their own. The first group has the network's trained weights, in the order of
            `net.parameters()`.
        scheduler: a function from the optimizer to a scheduler, which is stepped after every training step, not once
            per epoch; by default warm-up and cosine. ReduceLROnPlateau is stepped after every evaluation instead, with
            the NLL on `val`, or with the accuracy in mode "max".
        clip: largest norm of the gradient; by default no limit.
        accumulate: number of parts in which each batch is processed, if it does not fit in memory at once.
        ema: decay of a moving average of the weights; if given, that average is evaluated and served.
        precision: "float32", "bf16" (autocast), or "auto": bf16 on a GPU that supports it.
        fast: use a faster memory layout (channels last), also on a CPU; on a GPU also run the networks in few fused
            kernels and each step as one CUDA graph. Anything that does not support this runs unchanged, with a note.
        compile: compile the step with torch.compile, instead of the fused kernels of `fast`.
        eval_every: epochs between evaluations on `val`.
        eval_last: number of final epochs that are all evaluated, whatever `eval_every` is.
        diversity_every: epochs between measurements of the members' diversity, which go into the log of `out`; 0 for
            none; by default as often as is cheap.
        workers: processes that load a Dataset; by default one per core, at most 8.
        device: "auto" (a GPU if there is one), "cpu", "cuda" or "cuda:N".
        spread_teachers: under torchrun, whether each process holds only some of the teachers; by default only if they
            do not all fit. `batch_size` counts the examples of all processes together.
        out: a run folder. Repeating the call resumes from what is there; a call with other settings, data or teachers
            is refused. From then on the weights come from the folder, not from `net`, so a script that creates `net`
            with new random weights each time still resumes. To start from other weights, such as pre-trained ones,
            choose another folder.
        log: "tensorboard" for event files in `out/tensorboard`.
        progress: True to show on stderr what the command line shows: a bar on a terminal, otherwise a line every ten
            seconds; False for nothing; by default True on a terminal or in a notebook. The logger "onefold" gets a
            line per epoch (`logging.basicConfig(level=logging.INFO)` shows these instead of the bar) and, if no
            progress is shown, warnings about possible mistakes. You can also pass an object with
            `update(done, total, loss, lr, rate)` and `message(text)`.
    """
    check_log(log, out)
    check_progress(progress)
    method = method_named(method)
    perturbation = None if perturbation is None else perturbation_named(perturbation)
    if not isinstance(net, nn.Module):
        raise ValueError(f"net: expected a torch.nn.Module, got {type(net).__name__}")
    check_not_compiled("net", net)
    check_one_input("net", net)
    asked = given_teachers(teachers, method)
    members = 1 if asked is None else asked.members
    perturbation = perturbation or own_perturbation(method, members)
    check_pair(method, perturbation, members)
    splits: dict[str, Split | None] = {
        name: None if split is None else as_split(split, name)
        for name, split in {"train": train, "val": val, "test": test}.items()
    }
    if splits["train"] is None:
        raise ValueError("train: expected a torch Dataset, a DataLoader or a pair of tensors (x, y), got None")
    world = world_here()
    place = device_here(device, world)
    check_is_space(space)
    if warmup_epochs is None:  # `Settings` refuses epochs that are no number
        warmup_epochs = min(WARMUP, epochs / 10) if isinstance(epochs, int | float) else 0.0
    rates = {"lr": lr, "weight_decay": weight_decay}
    optim = OptimRecipe(
        **{name: rate for name, rate in rates.items() if rate is not None},
        momentum=momentum,
        batch_size=batch_size_for(splits["train"], batch_size, world),
        warmup_epochs=warmup_epochs,
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
    if method.needs_teachers:  # teachers and students are often given the same settings, those of distillation included
        usual = vars(DistillRecipe()) | vars(OptimRecipe())
        chosen = {name: value for name, value in settings.hyperparameters.items() if value != usual[name]}
        check_taken(method, perturbation, chosen)
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
    about: dict[str, Any] = {"kind": "python", "taught_by": 0 if asked is None else asked.members}
    if out is not None or world.size > 1:
        about["glances"] = {name: glance(split) for name, split in splits.items() if split is not None}
        about["preprocessing"] = preprocessing(splits["train"], crops)
    title = method.name if perturbation.name == "none" else f"{method.name}-{perturbation.name}"
    with showing(progress, title, world.rank) as listener:
        result = conduct(job, None if out is None else RunFolder(out), record(job), about, listener, log)
        if (warning := warning_of_temperature(result.temperature, result.metrics)) is not None:
            noting(listening(listener, world.rank))(warning)
    return result


def record(job: Job) -> dict[str, Any]:
    """A record of the settings and data of a run that has no recipe."""
    described: dict[str, Any] = {"source": "python", "network": type(job.net).__name__}
    described |= dataclasses.asdict(job.settings)
    described["optim"] |= dict.fromkeys(job.unsaid)  # run.json has the values that the optimizer chose
    if isinstance(job.train, DataLoader):  # it makes its own batches; their size was never recorded here
        described["optim"]["batch_size"] = OptimRecipe.batch_size
    splits = {"train": job.train, "val": job.val, "test": job.test}
    described["splits"] = {name: None if split is None else trace(split) for name, split in splits.items()}
    return described | {"augment": repr(job.augment), "space": job.space.described, "device": str(job.device)}
