from __future__ import annotations

import hashlib
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from torchvision import datasets

from onefold.data import Arrays, CropFlip, load
from onefold.data.cifar import LAYOUTS, read_records

NAMES10 = [f"class {number}" for number in range(10)]


def write_records(file: Path, labels: dict[int, int], images: int, label_bytes: int = 1) -> None:
    """A file of the size that is distributed, zeros but for some labels; record i has pixel i % 251 in its corner."""
    record = label_bytes + 3072
    with open(file, "wb") as out:
        out.truncate(images * record)  # sparse: the size without the bytes
        for index, label in labels.items():
            out.seek(index * record)
            out.write(bytes([9] * (label_bytes - 1) + [label, index % 251]))


def write_cifar10(root: Path) -> Path:
    folder = root / "cifar-10-batches-bin"
    folder.mkdir()
    # Every class at the beginning, one image that is the last to be trained on and one the first held out.
    for number in range(1, 6):
        labels = {index: index for index in range(10)} if number == 1 else {}
        write_records(folder / f"data_batch_{number}.bin", {**labels, 4999: 3, 5000: 4}, 10_000)
    write_records(folder / "test_batch.bin", {9999: 7}, 10_000)
    (folder / "batches.meta.txt").write_text("\n".join(NAMES10) + "\n\n")
    return folder


def test_binary_cifar10_is_read_with_the_papers_split(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    source = load("cifar10", tmp_path)
    assert isinstance(source.train, Arrays)
    assert isinstance(source.val, Arrays)
    assert isinstance(source.test, Arrays)
    assert [len(split) for split in (source.train, source.val, source.test)] == [45_000, 5_000, 10_000]
    assert source.train.x.shape == (45_000, 3, 32, 32)
    assert source.train.y[:10].tolist() == list(range(10))
    assert source.train.x[:10, 0, 0, 0].tolist() == list(range(10))
    assert (int(source.train.y[-1]), int(source.val.y[0])) == (3, 4)
    assert int(source.val.x[0, 0, 0, 0]) == 5000 % 251
    assert int(source.test.y[-1]) == 7
    assert source.classes == tuple(NAMES10)
    assert (source.image_size, source.channels, source.augment) == ((32, 32), 3, CropFlip(4, True))
    first, *others = source.notes
    assert first == "val is the last 5,000 training images"
    assert all("has no example of" in note for note in others)  # of which so few images do not have all


def test_binary_cifar100_takes_the_fine_label(tmp_path: Path) -> None:
    file = tmp_path / "train.bin"
    write_records(file, {0: 77, 2: 99}, 4, label_bytes=2)
    arrays = read_records(file, 2, 4, tuple(map(str, range(100))))
    assert arrays.y.tolist() == [77, 0, 99, 0]
    assert arrays.x[2].flatten()[:2].tolist() == [2, 0]


def test_channels_are_planes(tmp_path: Path) -> None:
    image = np.random.default_rng(0).integers(0, 256, (3, 32, 32), dtype=np.uint8)
    (tmp_path / "one.bin").write_bytes(bytes([4]) + image.tobytes())
    arrays = read_records(tmp_path / "one.bin", 1, 1, tuple(NAMES10))
    np.testing.assert_array_equal(arrays.x[0].numpy(), image)


def test_a_label_outside_the_classes_is_named_with_its_record(tmp_path: Path) -> None:
    file = tmp_path / "data_batch_1.bin"
    write_records(file, {17: 12}, 20)
    with pytest.raises(
        ValueError, match=r"classes 0 to 9, got 1 outside of them:\n  .*data_batch_1.bin, record 17: label 12"
    ):
        read_records(file, 1, 20, tuple(NAMES10))


def test_a_file_that_is_not_complete_is_named(tmp_path: Path) -> None:
    folder = write_cifar10(tmp_path)
    with open(folder / "data_batch_3.bin", "r+b") as file:
        file.truncate(1_000)
    with pytest.raises(ValueError, match=r"data_batch_3.bin: expected 30,730,000 bytes, got 1,000; download it again"):
        load("cifar10", tmp_path)


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_missing_data_say_where_and_how(name: str, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=rf"^{name}: {tmp_path}/{LAYOUTS[name].binary} and {tmp_path}/.* not found; pass --download"
    ):
        load(name, tmp_path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    (write_cifar10(tmp_path) / "data_batch_2.bin").unlink()
    with pytest.raises(
        ValueError, match=r"^cifar10: .*/data_batch_2.bin and .*cifar-10-batches-py not found; pass --download"
    ):
        load("cifar10", tmp_path)


def write_pickled(folder: Path, file: str, content: object) -> list[str]:
    folder.mkdir(exist_ok=True)
    data = pickle.dumps(content)
    (folder / file).write_bytes(data)
    return [file, hashlib.md5(data).hexdigest()]


def test_the_python_version_is_read_through_torchvisions_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = np.random.default_rng(0)
    data = numbers.integers(0, 256, (5_030, 3072), dtype=np.uint8)
    labels = [index % 10 for index in range(5_030)]
    folder = tmp_path / "cifar-10-batches-py"
    train = write_pickled(folder, "data_batch_1", {"data": data, "labels": labels})
    test = write_pickled(folder, "test_batch", {"data": data[:7], "labels": labels[:7]})
    meta = write_pickled(folder, "batches.meta", {"label_names": NAMES10})
    # torchvision compares with the md5 of the originals; here the files of this test are the originals.
    monkeypatch.setattr(datasets.CIFAR10, "train_list", [train])
    monkeypatch.setattr(datasets.CIFAR10, "test_list", [test])
    monkeypatch.setattr(datasets.CIFAR10, "meta", {"filename": meta[0], "key": "label_names", "md5": meta[1]})
    source = load("cifar10", tmp_path)
    assert isinstance(source.train, Arrays)
    assert isinstance(source.test, Arrays)
    assert torch.equal(source.train.x, torch.from_numpy(data[:30]).view(30, 3, 32, 32))
    assert source.train.y.tolist() == labels[:30]
    assert (len(source.test), source.classes) == (7, tuple(NAMES10))


def test_a_pickle_that_is_not_the_original_is_never_opened(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    for file in ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"):
        write_pickled(folder, file, Trap(tmp_path / "sprung"))
    with pytest.raises(ValueError, match=rf"^cifar10: could not read it in {tmp_path}: Dataset not found or corrupted"):
        load("cifar10", tmp_path)
    assert not (tmp_path / "sprung").exists()
    pickle.loads((folder / "test_batch").read_bytes())  # the trap does work
    assert (tmp_path / "sprung").exists()


class Trap:
    """Makes a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return Path.mkdir, (self.path,)


def test_a_download_that_fails_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*_: object, **__: object) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr(datasets.CIFAR10, "download", offline)
    with pytest.raises(ValueError, match=rf"^cifar10: could not download it to {tmp_path}: no route to host; try"):
        load("cifar10", tmp_path, download=True)


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_the_python_version_lies_where_torchvision_puts_it(name: str) -> None:
    layout = LAYOUTS[name]
    assert getattr(datasets, layout.reader).base_folder == layout.pickled
