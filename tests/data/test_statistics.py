from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from onefold.data import ImageFiles, statistics_of
from onefold.data.statistics import IMAGENET, sampled
from onefold.models import IMAGENET as IMAGENET_OF_THE_MODELS


@settings(deadline=None, max_examples=30)
@given(channels=st.integers(1, 4), count=st.integers(1, 6), seed=st.integers(0, 2**16), whole=st.booleans())
def test_agrees_with_numpy(channels: int, count: int, seed: int, whole: bool) -> None:
    numbers = np.random.default_rng(seed)
    shape = (count, channels, 5, 3)
    x = numbers.integers(0, 256, shape, dtype=np.uint8) if whole else numbers.normal(3, 2, shape)
    mean, std = statistics_of(torch.from_numpy(x))
    values = x / 255 if whole else x
    np.testing.assert_allclose(mean, values.mean(axis=(0, 2, 3)), rtol=1e-3)
    np.testing.assert_allclose(std, values.std(axis=(0, 2, 3)), rtol=1e-3)


def test_features_have_statistics_each() -> None:
    x = torch.tensor([[1.0, 5.0], [3.0, 5.0]])
    # A feature that does not vary is divided by one, not by zero.
    assert statistics_of(x) == ((2.0, 5.0), (1.0, 1.0))


def test_four_digits_are_kept() -> None:
    mean, _ = statistics_of(torch.tensor([[1.0, 0.000123456], [1.0, 0.000123456]], dtype=torch.float64))
    assert mean == (1.0, 0.0001235)


def test_a_sample_is_spread_over_the_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = []
    for value in (0, 51, 102, 255):
        file = tmp_path / f"{value}.png"
        Image.fromarray(np.full((6, 4, 3), value, dtype=np.uint8)).save(file)
        files.append(str(file))
    monkeypatch.setattr("onefold.data.statistics.SAMPLE", 4)
    # Two of each: every second one is read.
    mean, std = sampled(ImageFiles([file for file in files for _ in range(2)], torch.zeros(8)))
    values = np.array([0, 51, 102, 255]) / 255
    np.testing.assert_allclose(mean, [values.mean()] * 3, rtol=1e-3)
    np.testing.assert_allclose(std, [values.std()] * 3, rtol=1e-3)


def test_imagenets_are_those_of_the_models() -> None:
    assert (IMAGENET_OF_THE_MODELS.mean, IMAGENET_OF_THE_MODELS.std) == IMAGENET
