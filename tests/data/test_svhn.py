from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
from torchvision import datasets

from onefold.data import Arrays, CropFlip, load


def write(root: Path, split: str, count: int) -> list[str]:
    """A file as distributed: images `[32, 32, 3, N]`, the digit 0 as label 10."""
    file = root / f"{split}_32x32.mat"
    labels = np.arange(count) % 10
    images = np.zeros((32, 32, 3, count), dtype=np.uint8)
    images[5, 7, 1] = labels
    write_mat: Any = scipy.io.savemat  # type: ignore[attr-defined]
    write_mat(file, {"X": images, "y": np.where(labels == 0, 10, labels)[:, None].astype(np.uint8)})
    return ["", file.name, hashlib.md5(file.read_bytes()).hexdigest()]


@pytest.fixture
def svhn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    files = {"train": write(tmp_path, "train", 100), "test": write(tmp_path, "test", 30)}
    monkeypatch.setattr(datasets.SVHN, "split_list", files)
    return tmp_path


def test_is_read_with_a_held_out_validation_split(svhn: Path) -> None:
    source = load("svhn", svhn)
    sizes = []
    for split in (source.train, source.val, source.test):
        assert isinstance(split, Arrays)
        assert (split.x[:, 1, 5, 7] == split.y).all()
        assert split.y.bincount().unique().numel() == 1
        sizes.append(len(split))
    assert sizes == [90, 10, 30]
    assert source.augment == CropFlip(4, flip=False)
    assert source.notes == ("val is 10% of each class of train, held out with seed 0",)


def test_missing_data_say_where_and_how(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=rf"^svhn: {tmp_path}/train_32x32.mat and .*test_32x32.mat not found; pass --download"
    ):
        load("svhn", tmp_path)


def test_without_scipy_it_says_so(svhn: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*_: object, **__: object) -> None:
        raise ModuleNotFoundError("No module named 'scipy'", name="scipy")

    monkeypatch.setattr(datasets, "SVHN", absent)
    with pytest.raises(ValueError, match=r"^svhn: reading it needs scipy; run: .*pip install .*scipy$"):
        load("svhn", svhn)
