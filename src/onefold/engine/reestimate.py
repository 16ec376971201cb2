"""Re-estimates BatchNorm statistics for weights that were not themselves trained, such as an average of members."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


def statistics_of(net: nn.Module) -> list[_BatchNorm]:
    """The layers with running statistics."""
    return [m for m in net.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]


@torch.no_grad()
def reestimate(net: nn.Module, inputs: Iterable[Tensor]) -> int:
    """Replaces the running statistics by the mean over batches x_1, x_2, ... of what each layer sees; returns the
    number of examples.

        mean <- sum_b n_b mean_b / sum_b n_b        var <- sum_b n_b var_b / sum_b n_b

    n_b is the size of a batch; mean_b and var_b (unbiased) are over its examples and positions. Only BatchNorm layers
    are in training mode, so that the layers before a layer normalise by the batch's own statistics, and dropout is off.
    The network is left in evaluation mode. Inputs should be augmented training inputs: networks trained on cropped and
    mirrored images do badly with the statistics of plain ones.
    """
    layers = statistics_of(net)
    before = [layer.momentum for layer in layers]
    net.eval()
    seen = 0
    try:
        for layer in layers:
            layer.reset_running_stats()
            layer.train()
        for x in inputs:
            if len(x) < 2:
                continue  # the variance of a single example may be undefined
            seen += len(x)
            for layer in layers:
                layer.momentum = len(x) / seen
            net(x)
    finally:
        for layer, momentum in zip(layers, before, strict=True):
            layer.momentum = momentum
        net.eval()
    if not seen:
        raise ValueError("inputs: expected at least one batch of two examples or more, got none")
    return seen
