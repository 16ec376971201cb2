"""A small classifier for tabular data."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from onefold.models.arguments import check_channels, check_count
from onefold.models.standardize import ChannelStatistics, Standardize


def mlp(
    features: int,
    classes: int,
    hidden: Sequence[int] = (128, 128),
    statistics: ChannelStatistics | None = None,
) -> nn.Sequential:
    """Linear and ReLU layers from `[B, F]` to logits `[B, K]`; without `hidden`, logistic regression.

    With `statistics` the features are standardised first; without, they are used unchanged.
    """
    check_count("features", features, least=1)
    check_count("classes", classes, least=2)
    for width in hidden:
        check_count("hidden", width, least=1)
    net = nn.Sequential()
    if statistics is not None:
        check_channels(statistics, channels=features)
        net.add_module("standardize", Standardize(statistics.mean, statistics.std))
    inputs = features
    for number, width in enumerate(hidden, start=1):
        net.add_module(f"linear{number}", nn.Linear(inputs, width))
        net.add_module(f"relu{number}", nn.ReLU())
        inputs = width
    net.add_module("head", nn.Linear(inputs, classes))
    return net
