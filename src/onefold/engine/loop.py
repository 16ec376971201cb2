"""The training loop of every method, from the first step or a checkpoint to the last step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from signal import Signals
from typing import Any

import torch
from torch import Tensor

from onefold.engine.abreast import Going
from onefold.engine.evaluate import measure
from onefold.engine.keeping.keeper import Keeper
from onefold.engine.losses import Losses, check_finite, diverged, weights_finite
from onefold.engine.progress import Progress
from onefold.engine.signals import Interrupted, Wish, interruptions
from onefold.engine.training import Training
from onefold.engine.watch import Pace, Watch
from onefold.recipe import evaluated
from onefold.types import Ensemble

ODD = "NaN or infinite"


@dataclass
class Best:
    """The evaluation with the highest accuracy; ties are broken by the lowest NLL, then by the earliest step.

    A small validation split has many ties in accuracy, the first of them long before the network has converged.
    """

    step: int
    epoch: int
    acc: float
    nll: float | None = None  # None in old checkpoints, which did not store it

    def beaten_by(self, acc: float, nll: float) -> bool:
        return acc > self.acc or (acc == self.acc and self.nll is not None and nll < self.nll)


@dataclass
class Position:
    """How far training has come."""

    step: int = 0  # completed steps
    seconds: float = 0.0
    best: Best | None = None


def fit(training: Training, keeper: Keeper, progress: Progress) -> Going[Position]:
    """Trains to the end, yielding after every step so that several runs can share a device; yields True when the next
    thing it does is wait for the device.

    Raises `Interrupted` on a signal, and `Diverged` on a non-finite loss.
    """
    settings, world, steps = training.job.settings, training.job.world, len(training.train)
    total = settings.epochs * steps
    losses = Losses(settings.log_every, training.job.device)
    at = resume(training, keeper, losses, progress, total)
    pace = Pace(at.step, at.seconds)
    watch = Watch(keeper, progress, losses, pace, settings.log_every, steps, total)

    with interruptions(keeper.run is not None) as wish:
        while at.step < total:
            epoch, first = divmod(at.step, steps)
            training.student.train()
            for x, labels in training.batches(epoch, first):
                rate = training.schedule.before(at.step)
                losses.append(one_step(training, x, labels, losses, at.step, keeper), rate)
                training.schedule.after()
                at.step += 1
                watch.after_step(at.step, rate, world.examples(x))
                if at.step % steps == 0:
                    break
                told, due = world.consult(wish.signal, pace.checkpoint_due(settings.minutes))
                if told is not None or due:
                    save(training, keeper, losses, at, pace)
                    stop_if(told, keeper, at.step, total)
                yield False
            check_length(at.step - epoch * steps, steps)

            yield True
            end_epoch(training, keeper, watch, at, epoch + 1)
            stop_if_asked(training, keeper, wish, at.step, total)
            yield at.step == total  # after the last epoch comes the final evaluation, which also waits for the device
            if at.step == total:  # other runs may have run meanwhile, and all may have been asked to stop
                stop_if_asked(training, keeper, wish, at.step, total)
    return at


def end_epoch(training: Training, keeper: Keeper, watch: Watch, at: Position, epoch: int) -> None:
    """After each epoch: an evaluation and a diversity record if due, a log line, and a checkpoint."""
    settings, measured = training.job.settings, None
    due = evaluated(epoch, settings.epochs, settings.eval_every, settings.eval_last)
    if training.val is not None and due:
        measured = evaluate(training, keeper, at, epoch)
    if training.job.world.rank == 0:
        watch.after_epoch(epoch, settings.epochs, measured)
    if training.diversity is not None and training.diversity.due(epoch):
        for record in training.diversity.records(at.step, epoch):
            keeper.log(record)
    save(training, keeper, watch.losses, at, watch.pace)
    if epoch == settings.epochs:
        keeper.wait()


def check_length(found: int, steps: int) -> None:
    if found != steps:
        raise ValueError(
            f"train: expected {steps} batches in every epoch, got {found}; "
            "a DataLoader must allow iterating again in every epoch"
        )


def resume(training: Training, keeper: Keeper, losses: Losses, progress: Progress, total: int) -> Position:
    """Restores the last checkpoint and returns its position; the start if there is none."""
    state = keeper.load_last()
    if state is None:
        return Position()
    training.load_state_dict(state["training"])
    losses.load_state_dict(state["losses"])
    best = None if state["best"] is None else Best(**state["best"])
    progress.message(f"resuming after step {state['step']} of {total}")
    return Position(state["step"], state["seconds"], best)


def one_step(training: Training, x: Tensor, labels: Tensor, losses: Losses, step: int, keeper: Keeper) -> Tensor:
    """Takes one step. If the objective refuses its inputs (it checks values only on a CPU), finds the cause: the data,
    divergence, or something else."""
    try:
        return training.step(x, labels)
    except ValueError as error:
        check_finite(losses, step, keeper.last)
        refuse_inputs(f"train: expected finite inputs, got {ODD} values in the batch of step {step + 1}", [x])
        if not weights_finite(training.student) or not answers_finite(training.student.at_rest, [x]):
            raise diverged(step + 1, "the network's outputs are not finite", training.rate, keeper.last()) from error
        raise


def evaluate(training: Training, keeper: Keeper, at: Position, epoch: int) -> dict[str, float]:
    """Measures what would be served now, and saves it if it is the best so far."""
    refuse_broken(training, keeper, at.step)
    assert training.val is not None
    method = training.job.method
    served = method.serve(training.evaluated)
    try:
        metrics = measure(served, method.predict, training.val, training.classes, training.job.world)
    except ValueError as error:
        refuse_inputs(f"val: expected finite inputs, got {ODD} values", (x for x, _ in training.val.batches()))
        if not answers_finite(served, (x for x, _ in training.val.batches())):
            raise diverged(at.step, "the network's outputs are not finite", training.rate, keeper.last()) from error
        raise
    keeper.log({"kind": "val", "step": at.step, "epoch": epoch} | metrics)
    training.schedule.measured(metrics)
    if at.best is None or at.best.beaten_by(metrics["acc"], metrics["nll"]):
        at.best = Best(at.step, epoch, metrics["acc"], metrics["nll"])
        keeper.save_best(at.step, training.evaluated)
    return metrics


def save(training: Training, keeper: Keeper, losses: Losses, at: Position, pace: Pace) -> None:
    """Replaces the last checkpoint, unless the losses or weights are not finite."""
    check_finite(losses, at.step, keeper.last)
    refuse_broken(training, keeper, at.step)
    at.seconds = pace.seconds()
    state: dict[str, Any] = {"step": at.step, "seconds": at.seconds, "best": asdict(at.best) if at.best else None}
    state |= {"losses": losses.state_dict(), "training": training.state_dict()}
    keeper.save_last(state, None if at.best is None else at.best.step)
    pace.saved()


@torch.no_grad()
def answers_finite(ensemble: Ensemble, inputs: Iterable[Tensor]) -> bool:
    return all(bool(ensemble(x).isfinite().all()) for x in inputs)


def refuse_inputs(reason: str, inputs: Iterable[Tensor]) -> None:
    """Raises an error about the inputs if they are not finite, rather than blaming the network."""
    if not all(bool(x.isfinite().all()) for x in inputs):
        raise ValueError(f"{reason}; fix or remove those examples")


def refuse_broken(training: Training, keeper: Keeper, step: int) -> None:
    if not weights_finite(training.student):
        raise diverged(step, "the weights are not finite after it", training.rate, keeper.last())


def stop_if(told: Signals | None, keeper: Keeper, step: int, total: int) -> None:
    if told is not None and keeper.run is not None:
        keeper.wait()
        raise Interrupted(
            f"stopped by {told.name} after step {step} of {total}; progress is saved in "
            f"{keeper.run.path}; run the same command again to resume",
            told,
        )


def stop_if_asked(training: Training, keeper: Keeper, wish: Wish, step: int, total: int) -> None:
    told, _ = training.job.world.consult(wish.signal, False, now=True)
    stop_if(told, keeper, step, total)
