"""A network's run time: seconds of training, and milliseconds per image of inference on this device."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from onefold.engine.keeping.environment import processor
from onefold.engine.measure.progress import Counting
from onefold.engine.measure.subject import Subject, Target
from onefold.engine.teachers import load_networks, teacher_runs
from onefold.ensemble import BatchEnsemble, Plain, Teachers, collapse
from onefold.metrics import log_mean_probabilities
from onefold.run import RunFolder

NAME = "costs"
BATCHES = (1, 128)
ROUNDS, LEAST, SECONDS = 50, 5, 3.0  # the most and fewest rounds, and the seconds after which to stop in between
Asked = dict[str, Callable[[Tensor], Tensor]]


def costs(subject: Subject, progress: Counting) -> list[str]:
    """Times whichever there are of a single network, an ensemble, a student with members and its collapsed network;
    returns messages about what is left out."""
    device, store = described(subject.device), subject.main.store
    if timed_already(subject.targets, subject.device):
        progress.message(f"costs: already stored for {subject.path} on {device}")
        return []
    asked, cannot = what_is_asked(subject)
    rows = []
    for place, batch in enumerate(BATCHES):
        progress.count(place, len(BATCHES), f"batch {batch}")
        shape = (subject.channels, *subject.image_size) if subject.images else subject.image_size
        x = torch.full((batch, *shape), 0.5, device=subject.device)
        for what, seconds in times(asked, x).items():
            rows.append({"what": what, "batch": batch, "ms_per_image": 1000 * seconds / batch})
    progress.count(len(BATCHES), len(BATCHES))
    each = [trained(run) for run in subject.runs]
    known = [seconds for seconds in each if seconds is not None]
    if len(known) < len(each):
        cannot.append(f"costs: metrics.jsonl of {subject.path} does not say how long training took")
    train = sum(known) if len(known) == len(each) else None
    store.write(NAME, {"device": device, "train_seconds": train, "inference": rows})
    return cannot


def timed_already(targets: Sequence[Target], device: torch.device) -> bool:
    """Whether the times on this device are stored, without building any network."""
    stored = targets[0].store.stored(NAME)
    return stored is not None and stored["device"] == described(device)


def what_is_asked(subject: Subject) -> tuple[Asked, list[str]]:
    """The functions to time, from images to log-probabilities, and messages about what cannot be timed."""
    if isinstance(subject.served, Teachers):
        return teachers_asked(subject.served), []
    folder, cannot = Path(str(subject.about.get("teachers", ""))), []
    asked: Asked = {}
    if subject.about.get("teachers") and subject.student is not None:
        try:
            networks = load_networks(teacher_runs(folder, subject.about["members"]), given=subject.network)
            teachers = Teachers(networks).to(subject.device).eval()
            asked |= teachers_asked(teachers)
        except (ValueError, OSError) as error:
            cannot.append(f"costs: the ensemble of {subject.path} is not timed: {error}")
    if subject.student is not None:
        collapsed = Plain(collapse(subject.student)).eval()
        return asked | {"be": answering(subject.student.at_rest), "collapsed": answering(collapsed)}, cannot
    folded = subject.about["members"] > 1  # a student whose checkpoints are gone
    kind = "be" if isinstance(subject.served, BatchEnsemble) else "collapsed" if folded else "single"
    return {kind: answering(subject.served)}, cannot


def teachers_asked(teachers: Teachers) -> Asked:
    return {"single": answering(Plain(teachers.networks[0]).eval()), "ensemble": answering(teachers)}


def answering(ensemble: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda x: log_mean_probabilities(ensemble(x))


@torch.no_grad()
def times(asked: Asked, x: Tensor) -> dict[str, float]:
    """Median times over rounds in which the functions take turns, so that other load affects all alike; two rounds of
    warm-up come first."""
    taken: dict[str, list[float]] = {name: [] for name in asked}
    begin, rounds = time.perf_counter(), -2
    while rounds < LEAST or (rounds < ROUNDS and time.perf_counter() - begin < SECONDS * len(asked)):
        for name, answer in asked.items():
            wait(x)
            start = time.perf_counter()
            answer(x)
            wait(x)
            if rounds >= 0:
                taken[name].append(time.perf_counter() - start)
        rounds += 1
    return {name: statistics.median(seconds) for name, seconds in taken.items()}


def wait(x: Tensor) -> None:
    if x.is_cuda:
        torch.cuda.synchronize(x.device)


def described(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{processor()}, {torch.get_num_threads()} thread{'s' if torch.get_num_threads() > 1 else ''}"


def trained(run: RunFolder) -> float | None:
    """Seconds of training according to the log."""
    logged: list[Any] = [record.get("seconds") for record in run.metrics() if record.get("kind") == "train"]
    return max((float(seconds) for seconds in logged if seconds is not None), default=None)
