"""Trains the same small jobs alone and in several processes; started by test_distributed.py.

    python together.py FOLDER

Groups of processes are forked before anything was computed: the libraries are loaded once.
"""

from __future__ import annotations

import dataclasses
import errno
import functools
import os
import random
import shutil
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast
from unittest import mock

import torch
import torch._dynamo  # optimizers load it, which takes seconds: here once, and not in every child
from torch import Tensor, nn
from torch.optim import SGD
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, TensorDataset, random_split

from onefold import Teachers, batch_ensemble, distill
from onefold.data import Arrays
from onefold.engine import Job, Settings, conduct, train_teachers
from onefold.engine.accelerate import fast_student
from onefold.engine.capture import CapturedStep, Graph
from onefold.engine.distributed import World, processes, world_here
from onefold.engine.distributed.processes import Processes
from onefold.engine.distributed.rows import own_rows
from onefold.engine.distributed.spread import SpreadTeachers, own_teachers
from onefold.engine.distributed.statistics import with_common_statistics
from onefold.engine.keeping import checkpoint
from onefold.engine.step import training_step
from onefold.ensemble.layers import RankOneConv, RankOneLinear
from onefold.fast import passes
from onefold.methods import METHODS, method_named, perturbation_named
from onefold.models import WideResNet
from onefold.models.standardize import CIFAR10
from onefold.perturb import InputSpace
from onefold.recipe import OptimRecipe
from onefold.recipes import digits
from onefold.run import RunFolder, write_aside

SIZES = {1: 0, 2: 0, 3: 7}  # processes, and from which case on: three are for parts that are uneven, or empty
OPTIM = {"batch_size": 12, "warmup_epochs": 0.5, "lr": 0.05, "weight_decay": 0.01}
MEMBERS = 2
PAPER = ("latentbe", "tdiv-sdiv")


class Normed(nn.Module):
    """Convolution, BatchNorm of two kinds, linear layers: `[B, 1, 4, 4]` to three classes."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.hidden = nn.Linear(width, 5)
        self.flat = nn.BatchNorm1d(5, momentum=None, affine=False)
        self.head = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.hidden(self.norm(self.conv(x)).relu().mean((2, 3)))
        return torch.as_tensor(self.head(self.flat(hidden).tanh()))


def unnormed() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 6), nn.Tanh(), nn.Linear(6, 3))


class Contrast(nn.Module):
    """Divides every image by its contrast: an image without any has no finite outputs."""

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(1)
        return flat / flat.std(1, keepdim=True)


class Experts(nn.Module):
    """Every image goes to one of some layers: a process has no gradient for one that none of its images goes to."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.layers = nn.Linear(16, 4), nn.ModuleList(nn.Linear(16, 3) for _ in range(4))
        self.unused = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        share, chosen = self.gate(x.flatten(1)).softmax(1).max(1)
        answers = [share[here, None] * self.layers[e](x.flatten(1)[here]) for e, here in self.parts(chosen)]
        return torch.cat(answers)[torch.cat([here for _, here in self.parts(chosen)]).argsort()]

    @staticmethod
    def parts(chosen: Tensor) -> list[tuple[int, Tensor]]:
        return [(e, (chosen == e).nonzero()[:, 0]) for e in range(4) if bool((chosen == e).any())]


def contrasts() -> nn.Module:
    return nn.Sequential(Contrast(), unnormed())


def dropping() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Dropout(0.2), nn.Linear(16, 6), nn.Tanh(), nn.Linear(6, 3))


def perturbed(method: str) -> str:
    return {"latentbe": "tdiv-sdiv", "be": "tdiv", "supervised": "gaussian", "kd": "ods"}.get(method, "confods")


# name: method, perturbation, how many examples, the network, further fields of the optimizer. Batches are of 12.
CASES: dict[str, tuple[str, str, int, Callable[[], nn.Module], dict[str, Any]]] = {
    **{name: (name, perturbed(name), 36, Normed, {}) for name in METHODS},
    "equal": ("supervised", "none", 48, Normed, {}),
    "uneven": (*PAPER, 53, Normed, {"ema": 0.8, "clip": 0.5}),  # a last batch of 5
    "two for three": (*PAPER, 50, Normed, {}),  # a last batch of 2, which leaves one of three with none
    "one for all": ("latentbe", "gaussian", 49, contrasts, {}),
    "accumulated": ("kd", "none", 53, Experts, {"accumulate": 3}),
    "dropout": (*PAPER, 53, dropping, {"ema": 0.8}),
    "drop last": ("kd", "none", 53, Normed, {"drop_last": True, "label_smoothing": 0.1}),
}


SPREAD = ("latentbe", "kd", "aekd", "two for three")  # over three processes one holds no teacher at all


def split(count: int, seed: int) -> Arrays:
    draws = torch.Generator().manual_seed(seed)
    y = torch.randint(3, (count,), generator=draws)
    x = torch.rand(count, 1, 4, 4, generator=draws, dtype=torch.float64)
    return Arrays(x * (1 + y[:, None, None, None]) / 3, y)


def job_of(case: str, world: World) -> Job:
    """In float64, two epochs."""
    method, perturbation, count, network, optim = CASES[case]
    torch.manual_seed(1)
    nets = [network().double() for _ in range(MEMBERS)]
    for net in nets:
        net(split(40, 9).x)  # statistics of its own
    torch.manual_seed(2 + world.rank)  # a script need not seed: the first process's weights count
    return Job(
        method=method_named(method),
        perturbation=perturbation_named(perturbation),
        net=network().double(),
        teachers=Teachers(nets) if METHODS[method].needs_teachers else None,
        train=split(count, 0),
        val=split(101, 1),
        test=split(130, 2),
        settings=Settings(
            epochs=2,
            alpha=0.8,
            temperature=2.0,
            optim=OptimRecipe(**(OPTIM | optim)),
            log_every=2,
            diversity_every=1,
        ),
        device=torch.device("cpu"),
        # A step of a length that matters, and no clipping: where it ends would hang on rounding.
        space=InputSpace(scale=0.05, low=None, high=None),
        world=world,
    )


def group(size: int, work: Callable[[World], None]) -> int:
    """So many processes that do some work in their world; 0 if all of them ended well."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    children = []
    for rank in range(size):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                if size > 1:
                    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "MASTER_PORT": port}
                    os.environ |= {name: str(value) for name, value in place.items()} | {"MASTER_ADDR": "127.0.0.1"}
                work(world_here())
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        children.append(child)
    return max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)


def say(*words: object) -> None:
    """A line in one piece: several processes write at once."""
    os.write(1, ("|".join(map(str, words)) + "\n").encode())


def agree(folder: Path, world: World) -> None:
    """Every case, and some with teachers that are spread."""
    cases = list(CASES)[SIZES[world.size] :]
    for case, spread in [(case, False) for case in cases] + [(case, True) for case in SPREAD if world.size > 1]:
        job = job_of(case, world)
        if spread:
            assert isinstance(job.teachers, Teachers)
            assert isinstance(world, Processes)
            every = list(job.teachers.networks)
            nets = [every[m] for m in own_teachers(MEMBERS, world.rank, world.size)]
            job = dataclasses.replace(job, teachers=SpreadTeachers(nets, MEMBERS, world))
        name = f"{world.size}-spread" if spread else f"{world.size}"
        result = conduct(job, RunFolder(folder / name / case), {"case": case})
        kinds = {type(module).__name__ for module in result.model.modules()}
        say(name, world.rank, case, result.metrics["nll"], *sorted(kinds))


class Eventful(SGD):
    """Something happens before some step."""

    def __init__(self, groups: list[dict[str, Any]], at: int, event: Callable[[], None] | None) -> None:
        super().__init__(groups, momentum=0.9, nesterov=True)
        self.at, self.event, self.calls = at, event, 0

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.calls += 1
        if self.calls == self.at and self.event is not None:
            self.event()
        super().step(closure)


def eventful(world: World, folder: Path, event: Callable[[], None] | None = None, rank: int = 1) -> str:
    """A training with dropout in which something happens in one process; how it ended there."""
    mine = event if world.rank == rank else None
    job = job_of("dropout", world)
    job = dataclasses.replace(job, optimizer=lambda groups: Eventful(groups, 3, mine))
    processes.MOST = 1  # asks after every step
    try:
        conduct(job, RunFolder(folder), {"case": "dropout"})
    except (RuntimeError, ValueError, OSError) as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return "finished"


def on_a_slow_disk(kind: str, full: bool, folder: Path, world: World) -> None:
    """Stopped, where a write takes its time, or fails then; how it ended, and the step that is kept at that moment."""

    def slowly(path: Path, content: Any) -> None:
        time.sleep(0.5)
        if full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_aside(path, content)

    with mock.patch.object(checkpoint, "write_aside", slowly):
        end = eventful(world, folder, lambda: signal.raise_signal(signal.SIGTERM))
    last = folder / "checkpoints" / "last.safetensors"
    say(kind, world.rank, end, checkpoint.load(last)["step"] if last.exists() else "nothing")


def fail() -> None:
    raise ValueError("an accident")


def stories(folder: Path) -> None:
    """Stopped and continued, by as many processes or not; and one that fails."""

    def told(kind: str, *arguments: Any) -> Callable[[World], None]:
        return lambda world: say(kind, world.rank, eventful(world, *arguments))

    group(2, told("undisturbed", folder / "undisturbed"))
    group(2, told("stopped", folder / "stopped", lambda: signal.raise_signal(signal.SIGTERM)))
    for size in (1, 3):
        shutil.copytree(folder / "stopped", folder / f"continued by {size}")
        group(size, told(f"continued by {size}", folder / f"continued by {size}"))
    group(2, told("continued by 2", folder / "stopped"))
    for kind in ("slow", "full"):
        group(2, functools.partial(on_a_slow_disk, kind, kind == "full", folder / kind))
    group(2, told("failed", folder / "failed", fail))
    group(2, told("died", folder / "died", lambda: os.kill(os.getpid(), signal.SIGKILL)))


class Uncaptured(CapturedStep):
    """A step whose capture fails in the last process, and there alone; on a CPU, which has no graphs to begin with."""

    def generators(self, _device: torch.device) -> list[torch.Generator]:
        return []

    def capture(self, x: Tensor, labels: Tensor) -> Graph:
        if self.world.rank == self.world.size - 1:
            raise ValueError("an accident")
        return Graph(cast(Any, None), x, labels, x.sum(), [])


def rewritten(folder: Path, broken: bool, world: World) -> None:
    """A student with members, layer by layer in one process, with its graph rewritten in several; every gradient.

    The parts of its batches are equal, unequal, and (of three processes) none. `broken`: in the last process the
    rewriting goes wrong.
    """
    torch.manual_seed(0)
    net, x = WideResNet(1, 1, 3, CIFAR10).double(), torch.rand(13, 3, 8, 8, dtype=torch.float64)
    labels = torch.randint(3, (13,))
    student = batch_ensemble(net, MEMBERS, init="normal", example=x[:4])
    with_common_statistics(student, world)
    notes: list[str] = []
    if world.size > 1:
        RankOneConv.on_activations = RankOneLinear.on_activations = True  # as on a GPU
        if broken and world.rank == world.size - 1:
            passes.gradient = lambda dz, *_: dz
        fast_student(student, x[:4], "float32", notes.append, world)
        say("rewritten" if student.net._compiled_call_impl else "left", world.size, world.rank, *notes)

    def loss(x: Tensor, labels: Tensor) -> Tensor:
        return nn.functional.cross_entropy(student(x).flatten(0, 1), labels.repeat(MEMBERS))

    optimizer, found = SGD(student.parameters(), 0.1), {}
    step = training_step(loss, optimizer, world=world)
    taken = Uncaptured(step, [student], optimizer, True, notes.append, world) if world.size > 1 else step
    student.train()
    for number, rows in enumerate((slice(0, 6), slice(6, 11), slice(11, 13))):
        counts = [len(part) for part in x[rows].tensor_split(world.size)]
        own = own_rows(counts, world.rank)
        found[f"{number}/loss"] = taken(*world.take(x[rows][own], labels[rows][own], counts)).detach().clone()
        found |= {f"{number}/gradient/{name}": cast(Tensor, p.grad).clone() for name, p in student.named_parameters()}
        found |= {f"{number}/{name}": value.clone() for name, value in student.state_dict().items()}
    say("uncaptured", world.size, world.rank, *notes[broken:])
    folder.mkdir(exist_ok=True)
    torch.save(found, folder / f"{'broken' if broken else 'rewritten'}-{world.size}-{world.rank}.pt")


def teacher(folder: Path, _: World) -> None:
    """What the command of test_distributed.py trains under torchrun."""
    quick = dataclasses.replace(digits(), network="mlp", epochs=40, members=2)
    train_teachers(quick, folder, members=[0])


class Noisy(TensorDataset):
    """Examples that are other ones in every process, and each time."""

    def __getitem__(self, index: int) -> Any:
        x, label = (values[index] for values in self.tensors)
        return x + random.random() / 2, int(label)


def from_python(world: World) -> None:
    """`onefold.distill` with tensors, and with loaders: each process's share of the data, or not."""
    job = job_of("latentbe", world)
    assert isinstance(job.teachers, Teachers)
    assert isinstance(job.train, Arrays)
    assert isinstance(job.val, Arrays)
    given: dict[str, Any] = {"epochs": 2, "batch_size": 12, "lr": 0.05, "device": "cpu", "space": job.space}
    val = job.val.x, job.val.y
    result = distill(job.teachers, job.net, (job.train.x, job.train.y), val=val, spread_teachers=True, **given)
    say("tensors", world.size, world.rank, result.metrics["nll"])
    if world.size == 1:
        return
    data = TensorDataset(job.train.x, job.train.y)
    random.seed(world.rank)
    noisy = Noisy(*val)
    own = BatchSampler(DistributedSampler(data), 6, drop_last=False)
    shares: dict[str, dict[str, Any]] = {"loaders": {"batch_sampler": own}, "same": {"batch_size": 6}}
    given |= {"val": DataLoader(noisy, 50), "scheduler": lambda o: ReduceLROnPlateau(o, patience=0)}
    for kind, how in shares.items():
        told(kind, world, job, DataLoader(data, **how), given)
    others, _ = random_split(data, [30, len(data) - 30], torch.Generator().manual_seed(world.rank))
    differing: dict[str, dict[str, Any]] = {"seeds": {"seed": world.rank}, "data": {"test": others}}
    for kind, arguments in differing.items():
        told(kind, world, job, data, given | {"batch_size": 12} | arguments)


def told(kind: str, world: World, job: Job, train: object, given: dict[str, Any]) -> None:
    """What became of it: the metrics and the weights, or why it was refused."""
    try:
        result = distill(cast(Teachers, job.teachers), job.net, train, **given)
        weights = [value.double().sum().item() for value in result.model.state_dict().values()]
        say(kind, world.rank, result.metrics["nll"], weights)
    except ValueError as error:
        say(kind, world.rank, str(error).replace("\n", " "))


def main(folder: Path) -> int:
    code = max(group(size, functools.partial(agree, folder)) for size in SIZES)
    stories(folder / "stories")
    code = max(code, group(2, functools.partial(teacher, folder / "teachers")))
    for size, broken in ((1, False), (2, False), (3, False), (2, True)):
        code = max(code, group(size, functools.partial(rewritten, folder / "rewritten", broken)))
    return max(code, group(1, from_python), group(2, from_python))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
