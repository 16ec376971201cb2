from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from onefold.models import ChannelStatistics, Standardize, mlp

TABLE = ChannelStatistics(mean=(10.0, -3.0, 0.5, 100.0), std=(2.0, 0.1, 1.0, 30.0))


@pytest.mark.parametrize("statistics", [None, TABLE])
def test_is_the_plain_product_of_its_weights(statistics: ChannelStatistics | None) -> None:
    torch.manual_seed(0)
    net = mlp(4, 3, hidden=(8, 5), statistics=statistics).double()
    x = torch.randn(6, 4, dtype=torch.float64)
    state = {name: value.numpy() for name, value in net.state_dict().items()}
    h = x.numpy()
    if statistics is not None:
        # Through float32, in which the statistics are kept.
        mean, std = (np.array(v, dtype=np.float32) for v in (statistics.mean, statistics.std))
        h = (h - mean) / std
    for name in ("linear1", "linear2"):
        h = np.maximum(h @ state[f"{name}.weight"].T + state[f"{name}.bias"], 0)
    expected = h @ state["head.weight"].T + state["head.bias"]
    np.testing.assert_allclose(net(x).detach().numpy(), expected)


@pytest.mark.parametrize(("hidden", "known"), [((), 4 * 3 + 3), ((7,), 4 * 7 + 7 + 7 * 3 + 3), ((128, 128), 17_539)])
def test_parameter_counts(hidden: Sequence[int], known: int) -> None:
    net = mlp(4, 3, hidden)
    assert sum(p.numel() for p in net.parameters()) == known
    assert net(torch.randn(5, 4)).shape == (5, 3)


def test_the_first_layer_standardises() -> None:
    name, layer = next(mlp(4, 3, statistics=TABLE).named_children())
    assert name == "standardize"
    assert isinstance(layer, Standardize)
    assert layer.statistics == TABLE


def test_gradients_reach_the_input() -> None:
    torch.manual_seed(0)
    x = torch.randn(5, 4, requires_grad=True)
    mlp(4, 3, statistics=TABLE)(x).square().sum().backward()
    assert x.grad is not None
    assert bool((x.grad.norm(dim=1) > 0).all())


def test_counts_may_come_from_numpy() -> None:
    labels = np.array([0, 2, 1])
    assert mlp(4, labels.max() + 1)(torch.randn(2, 4)).shape == (2, 3)


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="features"):
        mlp(0, 3)
    with pytest.raises(ValueError, match="classes"):
        mlp(4, 1)
    with pytest.raises(ValueError, match="hidden: expected an integer of at least 1, got 0"):
        mlp(4, 3, hidden=(8, 0))
    with pytest.raises(ValueError, match="statistics: expected those of 5 channels, got 4"):
        mlp(5, 3, statistics=TABLE)
