"""A finished run as a network in memory. Not called `load`: a module of that name would take the function's place."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor, nn

from onefold.engine.answering import answering
from onefold.engine.evaluate import temperature_of
from onefold.engine.progress import LOG


def load(
    run: Path | str, calibrated: bool = True, net: nn.Module | None = None, example: Tensor | None = None
) -> nn.Module:
    """The network that a finished run serves, as an ordinary module on the CPU in evaluation mode.

    It is built as it was trained, with the mean and deviation that its inputs are standardised with, which are not
    among the weights. It answers logits `[B, K]` whose softmax is the run's prediction, also for an ensemble of
    teachers, a BE student and a Proxy-EnD2 student.

    Args:
        run: its folder; a folder of teachers gives their ensemble.
        calibrated: divide the logits by the temperature of the validation split, in the last layer where the network
            ends in one, as `onefold.calibrated` does.
        net: of a run from Python, whose folder has the weights alone: a network of that architecture, which stays as
            it is.
        example: beside `net`, a batch of inputs, for the last layer of a network that cannot be traced.
    """
    if net is not None and not isinstance(net, nn.Module):
        raise ValueError(f"net: expected a torch.nn.Module, got {type(net).__name__}")
    if net is None and example is not None:
        raise ValueError("example: expected none without net, got one; leave it out, or give the network, too")
    if example is not None and (example.dim() < 1 or not len(example)):
        raise ValueError(f"example: expected a batch of at least one input, got shape {list(example.shape)}")
    found = answering(run, "onefold.load(run, net=Net())", own=None if net is None else (net, example))
    temperature = temperature_of(run) if calibrated else None
    if calibrated and temperature is None:
        LOG.warning(f"{run} has no temperature, for there was no validation split: its network is as it was trained")
    return found.at(temperature)
