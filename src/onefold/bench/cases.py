"""The training steps that are timed: ours, and plain PyTorch versions of the same."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, replace

import torch
from torch import nn

from onefold.bench import plain
from onefold.bench.stepping import rounds_of, stepping
from onefold.bench.timing import Rounds, repeated
from onefold.data import Arrays, CropFlip
from onefold.engine.networks.named import build_network
from onefold.engine.settings import Settings
from onefold.engine.training import Job, Training, prepare
from onefold.ensemble import Teachers
from onefold.install import install
from onefold.methods import METHODS, PERTURBATIONS
from onefold.models import CIFAR10
from onefold.recipe import OptimRecipe

LATER = 2000
DECAY, TEMPERATURE = 5e-4, 4.0
VIT = "vit-s"
LARGE = {"resnet50": (224, 1000), VIT: (224, 1000)}  # pixels per side, classes


@dataclass(frozen=True)
class Case:
    """A whole training step, from drawing a batch to the update; with several `runs`, one step of each."""

    network: str
    method: str
    perturbation: str = "none"
    runs: int = 1
    members: int = 4
    batch: int = 128
    side: int = 32  # pixels
    classes: int = 10

    @property
    def label(self) -> str:
        if self.method == "supervised":
            return f"{self.runs} teachers at once, a round" if self.runs > 1 else "supervised, one"
        names = {"latentbe": "LatentBE", "tdiv-sdiv": "TDiv-SDiv"}
        method = f"{names.get(self.method, self.method)}-{self.members}"
        one = method if self.perturbation == "none" else f"{method} + {names[self.perturbation]}"
        return f"{self.runs} of {one} at once, a round" if self.runs > 1 else one


def rows_of(network: str, batch: int, members: int = 4) -> list[Case]:
    """The rows for a network; large ones at ImageNet's size, and without several at once."""
    side, classes = LARGE.get(network, (32, 10))
    one = Case(network, "supervised", members=members, batch=batch, side=side, classes=classes)
    student = replace(one, method="latentbe")
    perturbed = replace(student, perturbation="tdiv-sdiv")
    if network in LARGE:
        return [one, student, perturbed]
    return [one, replace(one, runs=4), student, perturbed, replace(perturbed, runs=4)]


def cases_for(device: torch.device, network: str | None = None, batch: int | None = None) -> list[Case]:
    """The network that is asked for; by default the paper's on a GPU, and one that takes seconds on a CPU."""
    cuda = device.type == "cuda"
    networks = [network] if network is not None else ["wrn28x1", "wrn28x4"] if cuda else ["wrn10x1"]
    batch = batch or (128 if cuda else 32)
    return [case for name in networks for case in rows_of(name, batch, 2 if name in LARGE else 4)]


def pictures(case: Case, device: torch.device) -> Arrays:
    """Random images on the device: on a GPU as many as in CIFAR's training split, or fewer if they are large."""
    count = max(4 * case.batch, 512) if device.type != "cuda" or case.network in LARGE else 45_000
    generator = torch.Generator().manual_seed(0)
    shape = (count, 3, case.side, case.side)
    x = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
    return Arrays(x.to(device), torch.randint(0, case.classes, (count,), generator=generator).to(device))


def fresh(case: Case) -> nn.Module:
    """A new network; refuses unknown names."""
    if case.network != VIT:
        return build_network(case.network, case.classes, (CIFAR10.mean, CIFAR10.std), (case.side, case.side))
    try:
        timm = importlib.import_module("timm")
    except ImportError:
        raise ValueError(f"network: '{VIT}' needs timm, which is not installed; run: {install('timm')}") from None
    net: nn.Module = timm.create_model("vit_small_patch16_224", num_classes=case.classes)
    return net


def networks_of(case: Case) -> tuple[list[nn.Module], list[nn.Module]]:
    """The teachers, if the method has any, and the networks to be trained; the same for both versions."""
    torch.manual_seed(0)
    teachers = [fresh(case) for _ in range(case.members)] if METHODS[case.method].needs_teachers else []
    return teachers, [fresh(case) for _ in range(case.runs)]


def trainings(case: Case, data: Arrays, device: torch.device, precision: str) -> list[Training]:
    """The engine's trainings, ready for the first step."""
    teachers, nets = networks_of(case)
    jobs = [
        Job(
            method=METHODS[case.method],
            perturbation=PERTURBATIONS[case.perturbation],
            net=net,
            teachers=Teachers(teachers).to(device) if teachers else None,
            train=data,
            val=None,
            test=None,
            settings=Settings(200, precision=precision, optim=OptimRecipe(batch_size=case.batch, drop_last=True)),
            device=device,
            augment=CropFlip(4),
            known=True,
        )
        for net in nets
    ]
    return [prepare(job) for job in jobs]


def our_rounds(case: Case, data: Arrays, device: torch.device, precision: str) -> Rounds:
    """Steps as in the training loop, at a point after the warm-up, with a typical learning rate."""
    ready = trainings(case, data, device, precision)
    return rounds_of([stepping(training, case.batch, at=LATER) for training in ready], device)


def plain_rounds(case: Case, data: Arrays, device: torch.device) -> Rounds:
    """The same in plain PyTorch, as written in an afternoon; several runs one after the other."""
    teachers, nets = networks_of(case)
    for module in (*teachers, *nets):
        module.to(device)
    frozen = [teacher.eval().requires_grad_(False) for teacher in teachers]
    steps = []
    for net in nets:
        if frozen:
            student = plain.batch_ensemble(net, case.members).to(device).train()
            optimizer = plain.optimizer_for(student, case.members, 0.1, DECAY)
            perturbed = case.perturbation != "none"
            steps.append(plain.latentbe_step(student, frozen, optimizer, DECAY, TEMPERATURE, perturbed))
        else:
            steps.append(plain.supervised_step(net.train(), plain.optimizer_for(net, 1, 0.1, DECAY)))

    def one_round() -> None:
        for step in steps:
            chosen = torch.randint(len(data), (case.batch,), device=device)
            step(plain.augment(data.x[chosen]), data.y[chosen])

    return repeated(one_round)
