"""Loads a finished run as a network. Not called `load.py`, because the module would shadow the function."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor, nn

from onefold.engine.answering import answering
from onefold.engine.evaluate import temperature_of
from onefold.engine.progress import LOG
from onefold.engine.served import Own
from onefold.methods import Method


def load(
    run: Path | str,
    calibrated: bool = True,
    net: nn.Module | None = None,
    example: Tensor | None = None,
    method: Method | None = None,
) -> nn.Module:
    """The network that a finished run serves, as an ordinary module on the CPU in evaluation mode.

    It is built as it was trained, including the mean and standard deviation that standardise its inputs, which are
    not among the weights. It returns logits `[B, K]` whose softmax is the run's prediction, also for an ensemble of
    teachers, a BE student and a Proxy-EnD2 student.

    Args:
        run: the run folder; for a folder of teachers, their ensemble is loaded.
        calibrated: divide the logits by the temperature fitted on the validation split; as in `onefold.calibrated`,
            this goes into the last layer if the network ends in a linear one.
        net: for a run that was trained from Python, whose folder has only the weights: a network of the same
            architecture, which is left unchanged.
        example: with `net`, a batch of inputs, to find the last layer of a network that cannot be traced.
        method: for a run of a method of your own: that method, which says how the network predicts.
    """
    if net is not None and not isinstance(net, nn.Module):
        raise ValueError(f"net: expected a torch.nn.Module, got {type(net).__name__}")
    if net is None and example is not None:
        raise ValueError("example: expected none without net, got one; leave it out, or give the network, too")
    if example is not None and (example.dim() < 1 or not len(example)):
        raise ValueError(f"example: expected a batch of at least one input, got shape {list(example.shape)}")
    found = answering(run, "onefold.load(run, net=Net())", own=Own(net, example, method))
    temperature = temperature_of(run) if calibrated else None
    if calibrated and temperature is None:
        LOG.warning(f"{run} has no temperature, because there was no validation split: its network is not calibrated")
    return found.at(temperature)
