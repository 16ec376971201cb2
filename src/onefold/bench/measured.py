"""Measures a recipe's own steps, evaluations and checkpoints for a few seconds."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from onefold.bench.memory import forget_peak, peak_bytes
from onefold.bench.stand_in import Examples
from onefold.bench.stepping import batches, rounds_of, stepping
from onefold.bench.timing import cleared, finished
from onefold.data import Loader
from onefold.data.order import draw_seed
from onefold.engine.device import current, own_randomness
from onefold.engine.distributed import ALONE
from onefold.engine.diversity import how_often
from onefold.engine.evaluate import measure, metrics_of
from onefold.engine.from_recipe import job_of, side_by_side
from onefold.engine.keeping.keeper import Keeper
from onefold.engine.loop import Position, save
from onefold.engine.losses import Losses
from onefold.engine.networks.named import build_network
from onefold.engine.training import Training, prepare
from onefold.engine.watch import Pace
from onefold.ensemble import Teachers
from onefold.methods import method_named, perturbation_named
from onefold.metrics import fit_temperature
from onefold.recipe import Recipe
from onefold.run import RunFolder

STILL = 1e-12  # a learning rate that changes nothing: only the work matters
LEAST, WARM = 3, 2  # least rounds to measure, and rounds to warm up
NUMBERS = 2_000_000  # most log-probabilities with which the metrics are timed


@dataclass(frozen=True)
class Measured:
    """Times in seconds, of one run or of `runs` side by side."""

    runs: int
    start_up: float  # until the end of the first step of every shape, plus the overhead of other first times
    step: float
    last: float  # a step on an epoch's last batch, if it is not full; else 0
    serve: float  # to make the network that is evaluated
    example: float  # to evaluate one example
    checkpoint: float  # to copy a checkpoint; a thread writes it
    best: float  # to copy the best weights
    written: float  # from then until both are on disk
    metrics: float  # of val and test, at the end
    look: float  # to measure the members' diversity; 0 if it is not measured
    memory: int  # peak bytes: on a GPU of all tensors, else of the process


def measured(
    recipe: Recipe,
    examples: Examples,
    device: torch.device,
    *,
    student: bool,
    seconds: float,
    say: Callable[[str], None],
) -> Measured:
    """Takes steps for some seconds, with untrained teachers, which cost the same as trained ones."""
    cleared(device)
    forget_peak(device)
    before = torch.cuda.memory_allocated(device) if device.type == "cuda" else 0  # not part of the run
    begin = finished(device)
    with own_randomness(device), current(device):
        ready = trainings(recipe, examples, device, student=student, say=say)
        found = timed(ready, recipe, examples, device, seconds, begin)
    return replace(found, memory=found.memory - before)


def trainings(
    recipe: Recipe, examples: Examples, device: torch.device, *, student: bool, say: Callable[[str], None]
) -> list[Training]:
    """The training of the student, or of as many teachers as are trained at once."""
    method = method_named(recipe.distill.method if student else "supervised")
    perturbation = perturbation_named(recipe.distill.perturbation if student else "none")
    still = replace(recipe, optim=replace(recipe.optim, lr=STILL))
    source, teachers = examples.source, None
    if method.needs_teachers:
        build = (recipe.network, len(source.classes), source.statistics, source.image_size)
        teachers = Teachers([build_network(*build) for _ in range(recipe.members)]).to(device)
    count = 1 if student else min(recipe.members, side_by_side(recipe, source, device, student=False))
    seeds = [draw_seed("plan", recipe.seed, m) for m in range(count)]
    jobs = [job_of(still, source, method, perturbation, teachers, seed, device, ALONE) for seed in seeds]
    return [prepare(replace(job, say=say)) for job in jobs]


def timed(
    ready: list[Training], recipe: Recipe, examples: Examples, device: torch.device, seconds: float, begin: float
) -> Measured:
    held = ready[0].train.examples
    size, left = min(recipe.optim.batch_size, held), examples.counts["train"] % recipe.optim.batch_size
    rounds = rounds_of([stepping(training, size) for training in ready], device)
    rounds(1)
    partial = left if left and not recipe.optim.drop_last and left < size else 0
    ends = rounds_of([stepping_on(training, size, partial) for training in ready], device) if partial else None
    if ends is not None:
        ends(1)
    start_up = finished(device) - begin
    step = mean_seconds(rounds, device, seconds)
    last = mean_seconds(ends, device, seconds / 20) if ends is not None else 0.0
    serve, example, warming = evaluation_seconds(ready[0], device, seconds / 4)
    looking, look = diversity_seconds(ready[0], device, recipe, examples)
    start_up += warming + looking
    kept = checkpoint_seconds(ready[0], device)
    metrics = metrics_seconds(examples.counts, len(examples.source.classes))
    memory = peak_bytes(device)
    return Measured(len(ready), start_up, step, last, serve, example, *kept, metrics, look, memory)


def stepping_on(training: Training, size: int, partial: int) -> Iterator[None]:
    """Takes steps on an epoch's last, partial batch."""
    x, labels = next(batches(training, size))
    x, labels = x[:partial].clone(), labels[:partial].clone()
    training.student.train()
    while True:
        training.schedule.before(0)
        training.step(x, labels)
        yield


def mean_seconds(rounds: Callable[[int], None], device: torch.device, seconds: float) -> float:
    """Seconds per round: the mean, not the median, because occasional slow steps also slow down a run."""
    rounds(WARM)
    begin = now = finished(device)
    done, block = 0, 1
    while done < LEAST or now - begin < seconds:
        rounds(block)
        done += block
        now = finished(device)
        block = max(1, min(50, int(seconds / 4 * done / (now - begin))))  # rounds between synchronisations
    return (now - begin) / done


class Some:
    """A loader that stops after some time."""

    def __init__(self, loader: Loader, seconds: float) -> None:
        self.loader, self.seconds, self.seen = loader, seconds, 0

    def batches(self, epoch: int = 0, start_step: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        begin = time.perf_counter()
        for x, labels in self.loader.batches(epoch, start_step):
            self.seen += len(labels)
            yield x, labels
            if time.perf_counter() - begin > self.seconds:
                return

    @property
    def examples(self) -> int:
        return self.loader.examples

    def __len__(self) -> int:
        return len(self.loader)

    def counts(self, step: int) -> list[int] | None:
        return self.loader.counts(step)


def evaluation_seconds(training: Training, device: torch.device, seconds: float) -> tuple[float, float, float]:
    """Seconds to make the network that is served, to evaluate an example with it, and the extra time of the first."""
    method, loader = training.job.method, training.val
    assert loader is not None, "a source has a validation split"
    times = []
    for _ in range(2):
        begin = finished(device)
        served = method.serve(training.evaluated)
        made = finished(device)
        part = Some(loader, seconds)
        measure(served, method.predict, part, training.classes)
        times.append((made - begin, finished(device) - made, part.seen))
    (first_serve, first, first_seen), (serve, later, seen) = times
    return serve, later / seen, max(0.0, first_serve - serve) + max(0.0, first - first_seen * later / seen)


def diversity_seconds(
    training: Training, device: torch.device, recipe: Recipe, examples: Examples
) -> tuple[float, float]:
    """Seconds that the first measurement of diversity takes longer than later ones, and seconds of a later one."""
    if training.diversity is None:
        return 0.0, 0.0
    # Use as many images as the run itself will; the stand-in for files has fewer examples.
    training.diversity.count = how_often(recipe.diversity_every, recipe.epochs, examples.counts["train"])[0]
    times = []
    for _ in range(2):
        begin = finished(device)
        training.diversity.records(0, 0)
        times.append(finished(device) - begin)
    return max(0.0, times[0] - times[1]), times[1]


def checkpoint_seconds(training: Training, device: torch.device) -> tuple[float, float, float]:
    """Seconds to copy the state, to copy the best weights, and from then until both are on disk, in the current folder,
    done as in a run. Measured the second time, when they replace the first."""
    losses = Losses(training.job.settings.log_every, device)
    with scratch() as folder:
        run = RunFolder(folder)
        run.checkpoints.mkdir()
        at, pace = Position(), Pace(0, 0.0)
        with Keeper(run) as keeper:
            for _ in range(2):
                run.log({"kind": "train", "step": 1})
                begin = finished(device)
                keeper.save_best(1, training.evaluated)
                best = finished(device)
                save(training, keeper, losses, at, pace)
                saved = finished(device)
                keeper.wait()
                written = finished(device)
    return saved - best, best - begin, written - saved


def scratch() -> tempfile.TemporaryDirectory[str]:
    """A temporary folder: in the current folder, where runs are saved by default, or else wherever possible."""
    try:
        return tempfile.TemporaryDirectory(prefix=".onefold-", dir=Path.cwd())
    except OSError:
        return tempfile.TemporaryDirectory(prefix="onefold-")


def metrics_seconds(counts: dict[str, int], classes: int) -> float:
    """Seconds for the metrics of val and test, and the temperature; extrapolated from a part if there are many."""
    share = min(1.0, NUMBERS / (classes * (counts["val"] + counts["test"])))
    splits = {}
    for split in ("val", "test"):
        count = max(int(counts[split] * share), 2)
        splits[split] = torch.arange(count) % classes, torch.randn(count, classes).log_softmax(-1)
    begin = time.perf_counter()
    metrics_of(splits)
    metrics_of({"val": splits["val"]})
    fit_temperature(splits["val"][1], splits["val"][0])
    return (time.perf_counter() - begin) / share
