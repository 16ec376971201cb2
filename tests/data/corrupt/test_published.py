"""The published folders: what is read is what was written, and everything wrong is said at once."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from onefold.data.corrupt import CORRUPTIONS, EXTRA, published

COUNT = 6  # images a severity; 10,000 in the files as distributed


def write_arrays(folder: Path, names: tuple[str, ...]) -> None:
    folder.mkdir()
    for name in names:
        numbers = np.random.default_rng(list(name.encode()))
        np.save(folder / f"{name}.npy", numbers.integers(0, 256, (5 * COUNT, 32, 32, 3), dtype=np.uint8))
    np.save(folder / "labels.npy", np.tile(np.arange(COUNT, dtype=np.uint8), 5))


@pytest.fixture
def cifar(tmp_path: Path) -> Path:
    write_arrays(tmp_path / "CIFAR-10-C", (*CORRUPTIONS, *EXTRA))
    return tmp_path / "CIFAR-10-C"


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """Two classes of two images each, all of one colour that tells corruption, severity, class and image."""
    for n, name in enumerate(CORRUPTIONS):
        for severity in range(1, 6):
            for c, label in enumerate(("n02", "n01")):
                folder = tmp_path / "Tiny-ImageNet-C" / name / str(severity) / label
                folder.mkdir(parents=True)
                for i in range(2):
                    Image.new("RGB", (64, 64), (16 * n, 40 * severity, 100 * c + 50 * i)).save(folder / f"val_{i}.JPEG")
    return tmp_path / "Tiny-ImageNet-C"


def test_cifar(cifar: Path) -> None:
    seen = []
    for name, severity, images, labels in published(cifar):
        seen.append((name, severity))
        original = np.load(cifar / f"{name}.npy")[(severity - 1) * COUNT : severity * COUNT]
        assert images.shape == (COUNT, 3, 32, 32)
        assert (images.permute(0, 2, 3, 1).numpy() == original).all()
        assert labels.dtype == torch.int64
        assert labels.tolist() == list(range(COUNT))
    assert seen == [(name, severity) for name in (*CORRUPTIONS, *EXTRA) for severity in range(1, 6)]


def test_cifar_streams(cifar: Path) -> None:
    """An array is opened when its turn comes, and nothing before stays."""
    sets: Iterator[object] = published(cifar)
    next(sets)
    (cifar / "shot_noise.npy").unlink()
    for _ in range(4):
        next(sets)
    with pytest.raises(FileNotFoundError):
        next(sets)


def test_extra_ones_may_be_absent_and_some_may_be_chosen(cifar: Path) -> None:
    (cifar / "spatter.npy").unlink()
    assert {part.name for part in published(cifar)} == {*CORRUPTIONS, *EXTRA} - {"spatter"}
    assert [part.name for part in published(cifar, ["fog", "snow"])] == ["fog"] * 5 + ["snow"] * 5
    with pytest.raises(ValueError, match=r"got no spatter\.npy; download"):
        published(cifar, ["spatter"])
    with pytest.raises(ValueError, match="did you mean 'frost'"):
        published(cifar, ["frosty"])


def test_all_that_is_wrong_with_arrays(cifar: Path) -> None:
    (cifar / "fog.npy").unlink()
    (cifar / "snow.npy").unlink()
    whole = (cifar / "frost.npy").read_bytes()
    (cifar / "frost.npy").write_bytes(whole[: len(whole) // 2])
    (cifar / "contrast.npy").write_bytes(b"not an array")
    np.save(cifar / "pixelate.npy", np.zeros((5 * COUNT, 32, 32, 3)))
    np.save(cifar / "brightness.npy", np.zeros((4 * COUNT, 32, 32, 3), dtype=np.uint8))
    with pytest.raises(ValueError) as caught:
        published(cifar)  # at the call, not when the fog's turn comes
    message = str(caught.value)
    for part in (
        "no fog.npy",
        "no snow.npy",
        "a damaged frost.npy",
        "a damaged contrast.npy",
        "pixelate.npy as float64 [30, 32, 32, 3]",
        "brightness.npy with 24 images for 30 labels",
        "download or unpack it again",
    ):
        assert part in message
    assert "\n" not in message
    assert "gaussian_noise" not in message


def test_labels_are_needed(cifar: Path) -> None:
    np.save(cifar / "labels.npy", np.zeros(31, dtype=np.uint8))
    with pytest.raises(ValueError, match=r"labels.npy as uint8 \[31\], not whole numbers \[5 N\]"):
        published(cifar)
    (cifar / "labels.npy").unlink()
    with pytest.raises(ValueError, match=r"no labels\.npy"):
        published(cifar)


def test_nothing_is_unpickled(cifar: Path) -> None:
    np.save(cifar / "labels.npy", np.array([{"a": 1}], dtype=object))
    with pytest.raises(ValueError, match=r"a damaged labels\.npy"):
        published(cifar)


def test_tiny(tiny: Path) -> None:
    seen = []
    for name, severity, images, labels in published(tiny):
        seen.append((name, severity))
        assert labels.tolist() == [0, 0, 1, 1]  # n01, n02
        assert images.shape == (4, 3, 64, 64)
        colours = images.double().mean(dim=(2, 3))
        blue = torch.tensor([100.0, 150, 0, 50])
        expected = torch.stack(
            [torch.full((4,), 16.0 * CORRUPTIONS.index(name)), torch.full((4,), 40.0 * severity), blue]
        )
        assert (colours - expected.T).abs().max() < 4  # JPEG
    assert seen == [(name, severity) for name in CORRUPTIONS for severity in range(1, 6)]


def test_all_that_is_missing_of_files(tiny: Path) -> None:
    shutil.rmtree(tiny / "gaussian_noise" / "1")
    (tiny / "fog" / "3" / "n01" / "val_1.JPEG").unlink()
    (tiny / "snow" / "2" / "n02" / "val_0.JPEG").write_bytes(b"")
    shutil.rmtree(tiny / "frost")
    with pytest.raises(ValueError) as caught:
        published(tiny)
    message = str(caught.value)
    assert "gaussian_noise/1 without 4 images of 2 classes" in message
    assert "fog/3 without n01/val_1.JPEG" in message
    assert "snow/2 without n02/val_0.JPEG" in message
    for severity in range(1, 6):
        assert f"frost/{severity} without 4 images" in message
    assert message.count(" without ") == 8
    assert "\n" not in message


def test_what_the_first_folders_lack_is_found_too(tiny: Path) -> None:
    for name in CORRUPTIONS[:2]:
        for severity in range(1, 6):
            (tiny / name / str(severity) / "n01" / "val_0.JPEG").unlink()
    with pytest.raises(ValueError) as caught:
        published(tiny)
    assert str(caught.value).count("without n01/val_0.JPEG") == 10


def test_images_that_cannot_be_read(tiny: Path) -> None:
    for i in range(2):
        (tiny / "gaussian_noise" / "2" / "n01" / f"val_{i}.JPEG").write_bytes(b"nothing")
    sets = published(tiny)
    assert next(sets).severity == 1
    with pytest.raises(ValueError, match=r"val_0\.JPEG cannot be read.*val_1\.JPEG cannot be read"):
        next(sets)


def test_images_of_several_sizes(tiny: Path) -> None:
    Image.new("RGB", (32, 64)).save(tiny / "gaussian_noise" / "1" / "n01" / "val_0.JPEG")
    with pytest.raises(ValueError, match="different sizes: 64 x 32, 64 x 64"):
        next(published(tiny))


def test_other_folders(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected a folder at"):
        published(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="none of the folders gaussian_noise/1"):
        published(tmp_path)
