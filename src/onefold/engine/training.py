"""Turns a job into everything its training loop needs, finding mistakes before the first step."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from onefold.data import Arrays, Augmentation, Loader, Split, loader_for
from onefold.data.order import draw_seed
from onefold.engine.accelerate import fast_student, fast_teachers
from onefold.engine.blame import blaming
from onefold.engine.capture import CapturedStep
from onefold.engine.choose_layout import layout_of_job
from onefold.engine.device import precision_on
from onefold.engine.distributed.spread import SpreadTeachers
from onefold.engine.distributed.statistics import draws_by_itself, with_common_statistics
from onefold.engine.distributed.world import ALONE, World
from onefold.engine.diversity import DiversityLog, diversity_log
from onefold.engine.layout import INNERMOST, OUTERMOST, Strides, innermost, lay_out, strides_of
from onefold.engine.optim.ema import MovingAverage
from onefold.engine.optim.factories import (
    OptimizerFactory,
    SchedulerFactory,
    load_optimizer,
    optimizer_for,
    schedule_for,
)
from onefold.engine.optim.schedule import Schedule
from onefold.engine.preflight import check_job, check_loaders, check_space, example_of
from onefold.engine.settings import Settings
from onefold.engine.step import Loss, Step, distillation_loss, training_step
from onefold.ensemble import Teachers
from onefold.fast.convolve import Gradients
from onefold.fast.network import compiled
from onefold.methods import AnyStudent, Method, Perturbing, with_hyperparameters
from onefold.perturb import PIXELS, Draws, InputSpace
from onefold.types import Ensemble

LARGE = 1 << 25  # elements up to which an evaluation batch of small images may grow


@dataclass(frozen=True, eq=False)
class Job:
    """What to train, on which data, and from which teachers."""

    method: Method
    perturbation: Perturbing
    net: nn.Module
    teachers: Teachers | SpreadTeachers | None
    train: Split
    val: Split | None
    test: Split | None
    settings: Settings
    device: torch.device
    augment: Augmentation | None = None
    space: InputSpace = PIXELS
    workers: int | None = None
    optimizer: OptimizerFactory | None = None
    unsaid: tuple[str, ...] = ()
    """which of "lr" and "weight_decay" the user did not give, so that the values of their own optimizer count"""
    scheduler: SchedulerFactory | None = None
    world: World = ALONE
    known: bool = False
    """whether the data are a recipe's: then splits were compared, and oddities reported, when they were loaded"""
    say: Callable[[str], None] = print

    def perturb(self, draws: Draws) -> Callable[..., Tensor]:
        """The perturbation with everything that it takes by name. Its inputs have been checked by then."""
        space = self.space.on(self.device).seen()
        known = self.settings.hyperparameters
        return with_hyperparameters(self.perturbation.perturb, **known, space=space, draws=draws)


@dataclass(eq=False)
class Training:
    """A job with its student on the device, ready for the first step or for loading a checkpoint."""

    job: Job
    classes: int
    student: AnyStudent
    step: Step
    optimizer: Optimizer
    schedule: Schedule
    ema: MovingAverage | None
    train: Loader
    val: Loader | None
    test: Loader | None
    diversity: DiversityLog | None = None
    strides: Strides = field(default_factory=dict)
    """the strides that the network's convolution weights had before training"""

    def batches(self, epoch: int, first: int) -> Iterator[tuple[Tensor, Tensor]]:
        """This process's part of every batch of an epoch, starting at step `first`."""
        for step, (x, labels) in enumerate(self.train.batches(epoch, first), first):
            yield self.job.world.take(x, labels, self.train.counts(step))

    @property
    def evaluated(self) -> AnyStudent:
        """The student to evaluate: the moving average of the weights if there is one."""
        return self.student if self.ema is None else self.ema.student

    @property
    def rate(self) -> float:
        """The learning rate of the shared weights (not of the factors)."""
        return float(self.optimizer.param_groups[0]["lr"])

    def close(self) -> None:
        """Releases the step's CUDA graphs; no more steps can be taken."""
        if isinstance(self.step, CapturedStep):
            self.step.close()

    def state_dict(self) -> dict[str, Any]:
        return {
            "student": dict(self.student.state_dict()),
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "ema": None if self.ema is None else dict(self.ema.student.state_dict()),
            "random": self.job.world.random_state(self.job.device),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.student.load_state_dict(state["student"])
        load_optimizer(self.optimizer, state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        if self.ema is not None:
            self.ema.student.load_state_dict(state["ema"])
        self.job.world.set_random_state(state["random"], self.job.device)


def prepare(job: Job) -> Training:
    """Sets up a training run. Seeds the global random generators and draws from them: call inside `own_randomness`."""
    settings, optim = job.settings, job.settings.optim
    precision = precision_on(job.device, settings.precision)
    job.world.rest()
    if settings.compile and isinstance(job.teachers, SpreadTeachers):
        raise ValueError("compile: expected False if the teachers are spread over processes, got True")
    check_loaders(job)
    x, labels = example_of(job.train, job.augment, job.device)
    check_space(job, x)
    torch.manual_seed(draw_seed("student", settings.seed))
    members = 1 if job.teachers is None else job.teachers.members
    net = copy.deepcopy(job.net).to(job.device)
    job.world.share(net)
    with blaming("net", x, job.net):
        student = job.method.student(net, members, x)
    student.to(job.device)

    objective = with_hyperparameters(job.method.objective, **settings.hyperparameters)
    perturb = job.perturb(job.world.draws)

    def loss_for(student: AnyStudent, teachers: Ensemble | None, layout: torch.memory_format = OUTERMOST) -> Loss:
        def loss(x: Tensor, labels: Tensor) -> Tensor:
            x = innermost(x) if layout is INNERMOST else x
            return distillation_loss(x, labels, student, teachers, objective, perturb)

        return loss

    classes = check_job(job, student, loss_for(student.at_rest, job.teachers), x, labels)

    layout = layout_of_job(job, student, lambda other, how: loss_for(other, job.teachers, how), x, labels)
    strides = strides_of(student.net)
    if layout is INNERMOST:
        lay_out(student)
    network_draws = job.world.size > 1 and draws_by_itself(student, x)
    with_common_statistics(student, job.world)
    # Collectives compiled by torch.compile are not captured in CUDA graphs.
    fast = settings.fast and job.device.type == "cuda" and not (settings.compile and job.world.size > 1)
    teachers = job.teachers
    if fast and not settings.compile:
        fast_student(student, innermost(x) if layout is INNERMOST else x, precision, job.say, job.world)
        if isinstance(teachers, Teachers):
            teachers = fast_teachers(teachers, x, precision, job.say, layout)
    optimizer = optimizer_for(student, settings, job.optimizer, fast, job.unsaid)
    ema = None if optim.ema is None else MovingAverage(student, optim.ema)
    loss = loss_for(student, teachers, layout)
    plain_step = training_step(
        compiled(loss) if settings.compile else loss,
        optimizer,
        clip=optim.clip,
        accumulate=optim.accumulate,
        ema=ema,
        precision=precision,
        gradients=Gradients() if fast else None,
        world=job.world,
    )
    step: Step = plain_step
    if fast:
        modules = [student] if ema is None else [student, ema.student]
        whole, branches = job.optimizer is None, not isinstance(teachers, SpreadTeachers)
        step = CapturedStep(plain_step, modules, optimizer, whole, job.say, job.world, branches)
    order: dict[str, Any] = {"seed": settings.seed, "drop_last": optim.drop_last, "layout": layout}
    train = loader_of(job, job.train, optim.batch_size, classes, train=True, **order)
    val, test = (None if split is None else evaluation_loader(job, split, classes) for split in (job.val, job.test))
    schedule = schedule_for(optimizer, settings, len(train), job.scheduler, measured=job.val is not None)
    common, own = draw_seed("steps", settings.seed, 0), draw_seed("networks", settings.seed, job.world.rank)
    job.world.seed(common, own, job.device, network_draws)
    watched = diversity_log(job, student, train.examples)
    return Training(job, classes, student, step, optimizer, schedule, ema, train, val, test, watched, strides)


def evaluation_loader(job: Job, split: Split, classes: int) -> Loader:
    batch_size = 2 * job.settings.optim.batch_size  # there is room for more: no activations are kept for a backward
    if job.device.type == "cuda" and isinstance(split, Arrays) and len(split):
        crowd = LARGE // split.x[0].numel()  # it takes many small images to fill a GPU
        batch_size = max(batch_size, min(1024, crowd))
    return loader_of(job, split, batch_size, classes, train=False, whole_batches=True)


def loader_of(job: Job, split: Split, batch_size: int, classes: int, *, train: bool, **how: Any) -> Loader:
    """This process's batches of one of the job's splits."""
    place: dict[str, Any] = {"device": job.device, "workers": job.workers}
    share: dict[str, Any] = {"rank": job.world.rank, "world_size": job.world.size}
    return loader_for(split, batch_size, train=train, augment=job.augment, classes=classes, **place, **share, **how)
