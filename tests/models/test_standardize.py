from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torchvision.transforms.functional import normalize

from onefold.models import CIFAR10, CIFAR100, IMAGENET, TINY_IMAGENET, ChannelStatistics, Standardize

KNOWN = {"CIFAR10": CIFAR10, "CIFAR100": CIFAR100, "TINY_IMAGENET": TINY_IMAGENET, "IMAGENET": IMAGENET}


@pytest.mark.parametrize("name", KNOWN)
def test_agrees_with_torchvision(name: str) -> None:
    statistics = KNOWN[name]
    x = torch.rand(4, 3, 7, 5, generator=torch.Generator().manual_seed(0))
    ours = Standardize(statistics.mean, statistics.std)(x)
    theirs = normalize(x, list(statistics.mean), list(statistics.std))
    torch.testing.assert_close(ours, theirs)


@settings(deadline=None, max_examples=30)
@given(
    channels=st.integers(1, 5),
    trailing=st.lists(st.integers(1, 4), max_size=3),
    seed=st.integers(0, 2**16),
)
def test_is_the_formula_for_every_shape(channels: int, trailing: list[int], seed: int) -> None:
    numbers = np.random.default_rng(seed)
    x = numbers.normal(size=(3, channels, *trailing))
    mean, std = numbers.normal(size=channels), numbers.uniform(0.1, 2.0, size=channels)
    expected = np.stack([(x[:, c] - mean[c]) / std[c] for c in range(channels)], axis=1)
    layer = Standardize(mean.tolist(), std.tolist())
    ours = layer(torch.tensor(x, dtype=torch.float32))
    np.testing.assert_allclose(ours.numpy(), expected, rtol=1e-4, atol=1e-4)


def test_one_standard_deviation_above_the_mean_is_one() -> None:
    layer = Standardize((0.5, 0.25), (0.125, 0.5))
    assert layer(torch.tensor([[0.625, 0.75]])).tolist() == [[1.0, 1.0]]


def test_statistics_follow_the_module_but_stay_out_of_its_state() -> None:
    layer = copy.deepcopy(Standardize(CIFAR10.mean, CIFAR10.std)).double()
    assert dict(layer.named_buffers()).keys() == {"mean", "std"}
    assert layer.mean.dtype == torch.float64
    assert not layer.state_dict()
    assert not list(layer.parameters())


def test_memory_format_is_kept() -> None:
    x = torch.rand(2, 3, 4, 4).to(memory_format=torch.channels_last)
    layer = Standardize(CIFAR10.mean, CIFAR10.std)
    assert layer(x).is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.bool])
def test_integers_are_told_to_be_divided(dtype: torch.dtype) -> None:
    with pytest.raises(ValueError, match="divide by 255"):
        Standardize(CIFAR10.mean, CIFAR10.std)(torch.zeros(2, 3, 4, 4, dtype=dtype))


@pytest.mark.parametrize("shape", [(2, 1, 4, 4), (2, 4, 4, 3), (3,)])
def test_other_channels_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"expected shape \[B, 3, ...\]"):
        Standardize(CIFAR10.mean, CIFAR10.std)(torch.zeros(shape))


@pytest.mark.parametrize(
    ("mean", "std", "named"),
    [
        ((), (), "mean"),
        ((0.5, 0.5), (1.0,), "std: expected 2 values"),
        ((0.5,), (1.0, 1.0), "std: expected 1 values"),
        ((float("nan"),), (1.0,), "mean"),
        ((0.5,), (0.0,), "std"),
        ((0.5,), (-1.0,), "std"),
        ((0.5,), (float("inf"),), "std"),
        ((0.5,), (float("nan"),), "std"),
    ],
)
def test_bad_statistics_are_refused(mean: tuple[float, ...], std: tuple[float, ...], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        Standardize(mean, std)
    with pytest.raises(ValueError, match=named):
        ChannelStatistics(mean, std)


def test_traces_whole() -> None:
    torch.compiler.reset()
    layer = Standardize(CIFAR10.mean, CIFAR10.std)
    x = torch.rand(2, 3, 4, 4)
    compiled = torch.compile(layer, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x), layer(x), rtol=0, atol=0)
