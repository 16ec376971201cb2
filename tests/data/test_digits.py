from __future__ import annotations

from importlib import resources

import numpy as np
import torch
from sklearn.datasets import load_digits

from onefold.data import Arrays, CropFlip, load


def test_the_file_holds_scikit_learns_images_and_is_small() -> None:
    file = resources.files("onefold.data").joinpath("digits.npz")
    assert len(file.read_bytes()) < 100_000
    source = load("digits")
    splits = [split for split in source.splits.values() if isinstance(split, Arrays)]
    x, y = torch.cat([split.x for split in splits]), torch.cat([split.y for split in splits])
    given = load_digits()
    ours = sorted(zip((x.flatten(1).numpy() / 255 * 16).round().astype(int).tolist(), y.tolist(), strict=True))
    theirs = sorted(zip(given.data.astype(int).tolist(), given.target.tolist(), strict=True))
    assert ours == theirs
    assert int(x.max()) == 255


def test_the_split_leaves_many_to_be_judged_by() -> None:
    source = load("digits")
    assert isinstance(source.train, Arrays)
    assert isinstance(source.val, Arrays)
    assert isinstance(source.test, Arrays)
    assert [len(split) for split in (source.train, source.val, source.test)] == [400, 200, 1197]
    assert source.train.x.shape == (400, 1, 8, 8)
    assert min(source.train.y.bincount(minlength=10)) > 30
    assert source.classes == tuple("0123456789")
    assert (source.image_size, source.channels, source.augment) == ((8, 8), 1, CropFlip(1, flip=False))
    pixels = source.train.x.double().numpy() / 255
    np.testing.assert_allclose(source.statistics.mean, [pixels.mean()], rtol=1e-3)
    np.testing.assert_allclose(source.statistics.std, [pixels.std()], rtol=1e-3)


def test_the_split_is_fixed() -> None:
    first, second = load("digits", seed=0), load("digits", seed=1)
    assert isinstance(first.train, Arrays)
    assert isinstance(second.train, Arrays)
    assert torch.equal(first.train.x, second.train.x)
    assert first.train.y[:12].tolist() == [6, 6, 6, 2, 5, 6, 6, 2, 2, 1, 1, 9]
