"""Noise: the formulas in float64 with the same draws, and the moments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
from torch import Tensor

from onefold.data.corrupt import corrupt
from onefold.data.corrupt.draws import Draws

stats: Any = scipy.stats  # its names are made when it is imported, so none are known to a type checker

Cut = Callable[..., None]
SEED = 11


def draws(name: str, severity: int, count: int) -> Draws:
    return Draws(SEED, f"{name} {severity}", torch.arange(count))


def flat(level: int, count: int = 40, side: int = 32) -> Tensor:
    return torch.full((count, 3, side, side), level, dtype=torch.uint8)


@pytest.mark.parametrize(("severity", "deviation"), [(1, 0.04), (5, 0.10)])
def test_gaussian_noise(severity: int, deviation: float, pictures: Callable[..., Tensor], cut: Cut) -> None:
    x = pictures(32, 32)
    z = draws("gaussian_noise", severity, len(x)).normal(3, 32, 32).double().numpy()
    cut(corrupt(x, "gaussian_noise", severity, SEED), 255 * (x.numpy() / 255 + deviation * z), 1e-2)
    grey = corrupt(flat(128), "gaussian_noise", severity, 0).double()
    assert grey.mean().item() == pytest.approx(127.5, abs=0.3)  # 0.5 is lost where values are cut
    assert grey.std().item() == pytest.approx(255 * deviation, rel=0.02)


@pytest.mark.parametrize(("severity", "deviation"), [(2, 0.1), (4, 0.16)])
def test_speckle_noise(severity: int, deviation: float, pictures: Callable[..., Tensor], cut: Cut) -> None:
    x = pictures(32, 32)
    z = draws("speckle_noise", severity, len(x)).normal(3, 32, 32).double().numpy()
    pixels = x.numpy() / 255
    cut(corrupt(x, "speckle_noise", severity, SEED), 255 * (pixels + pixels * deviation * z), 1e-2)
    assert corrupt(flat(60), "speckle_noise", severity, 0).double().std().item() == pytest.approx(
        60 * deviation, rel=0.02
    )


@pytest.mark.parametrize(("side", "severity", "amount"), [(32, 1, 0.01), (32, 5, 0.07), (224, 5, 0.27)])
def test_impulse_noise(side: int, severity: int, amount: float) -> None:
    x = flat(100, count=4 if side == 224 else 40, side=side)
    bits = draws("impulse_noise", severity, len(x)).bits(3, side, side).numpy()
    share = bits / 2**32
    expected = np.where(share < amount / 2, 255, np.where(share < amount, 0, 100))
    ours = corrupt(x, "impulse_noise", severity, SEED)
    assert (ours.numpy() == expected).all()
    black, white = (ours == 0).double().mean().item(), (ours == 255).double().mean().item()
    assert black == pytest.approx(amount / 2, rel=0.1)
    assert white == pytest.approx(amount / 2, rel=0.1)


@pytest.mark.parametrize(("side", "severity", "photons"), [(32, 1, 500), (32, 5, 50), (64, 5, 15), (224, 5, 3)])
def test_shot_noise(side: int, severity: int, photons: int, pictures: Callable[..., Tensor], cut: Cut) -> None:
    x = pictures(side, side, count=1 if side == 224 else 7)
    bits = draws("shot_noise", severity, len(x)).bits(3, side, side).double().numpy()
    # SciPy's quantile of the same bits; half a bit up, so that no tie is decided by rounding
    counts = stats.poisson.ppf((bits + 0.5) / 2**32, x.numpy() / 255 * photons)
    counts[x.numpy() == 0] = 0
    cut(corrupt(x, "shot_noise", severity, SEED), 255 * counts / photons)
    if side == 32:
        grey = corrupt(flat(102), "shot_noise", severity, 0).double() / 255 * photons
        assert grey.mean().item() == pytest.approx(0.4 * photons, rel=0.02)
        assert grey.var().item() == pytest.approx(0.4 * photons, rel=0.05)


def test_all_noises_leave_black_as_it_is_where_they_scale_with_the_value() -> None:
    black: Any = flat(0, count=2)
    for name in ("shot_noise", "speckle_noise"):
        assert not corrupt(black, name, 5, 0).any()
