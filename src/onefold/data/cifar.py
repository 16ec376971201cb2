"""CIFAR-10 and CIFAR-100: the binary version, which needs no unpickling, or the Python version through torchvision."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from onefold.data.fetch import missing, refused
from onefold.data.options import Options
from onefold.data.source import Source, from_arrays
from onefold.data.split import Arrays, check_range

VAL = 5000  # the paper's validation split: the last examples of train
PIXELS = 3 * 32 * 32


@dataclass(frozen=True)
class Layout:
    """How a CIFAR is distributed."""

    name: str
    binary: str  # folder of the binary version
    train: tuple[str, ...]
    test: str
    names: str  # file with the names of the classes, one per line
    label_bytes: int  # CIFAR-100 has the coarse label before the fine one
    images: int  # in each training file; the test file always has 10,000
    pickled: str  # folder of the Python version
    reader: str  # torchvision's class for it


LAYOUTS = {
    "cifar10": Layout(
        "cifar10",
        "cifar-10-batches-bin",
        tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
        "test_batch.bin",
        "batches.meta.txt",
        1,
        10_000,
        "cifar-10-batches-py",
        "CIFAR10",
    ),
    "cifar100": Layout(
        "cifar100",
        "cifar-100-binary",
        ("train.bin",),
        "test.bin",
        "fine_label_names.txt",
        2,
        50_000,
        "cifar-100-python",
        "CIFAR100",
    ),
}


def load_cifar(name: str, root: Path, options: Options) -> Source:
    """The last 5,000 training images are the validation split, as in the paper."""
    layout = LAYOUTS[name]
    wanted = [root / layout.binary / file for file in (*layout.train, layout.test, layout.names)]
    absent = [file for file in wanted if not file.is_file()]
    pickled = root / layout.pickled
    if not absent:
        train, test, classes = read_binary(layout, root / layout.binary)
    elif options.download or pickled.is_dir():
        train, test, classes = read_pickled(layout, root, options.download)
    else:
        raise missing(name, [*(absent if absent != wanted else [root / layout.binary]), pickled])
    if len(train) <= VAL:
        raise ValueError(f"{name}: expected more than {VAL} training images, got {len(train)}")
    kept = Arrays(train.x[:-VAL], train.y[:-VAL])
    val = Arrays(train.x[-VAL:], train.y[-VAL:])
    return from_arrays(name, kept, val, test, classes, notes=(f"val is the last {VAL:,} training images",))


def read_binary(layout: Layout, folder: Path) -> tuple[Arrays, Arrays, tuple[str, ...]]:
    """Reads records of label bytes and 3,072 bytes of pixels: red, green, blue."""
    classes = tuple(line.strip() for line in (folder / layout.names).read_text().splitlines() if line.strip())
    train = [read_records(folder / file, layout.label_bytes, layout.images, classes) for file in layout.train]
    test = read_records(folder / layout.test, layout.label_bytes, 10_000, classes)
    joined = Arrays(torch.cat([part.x for part in train]), torch.cat([part.y for part in train]))
    return joined, test, classes


def read_records(file: Path, label_bytes: int, images: int, classes: tuple[str, ...]) -> Arrays:
    """Reads one file, after checking by its size that it is complete."""
    record = label_bytes + PIXELS
    if file.stat().st_size != images * record:
        raise ValueError(f"{file}: expected {images * record:,} bytes, got {file.stat().st_size:,}; download it again")
    records = torch.from_numpy(np.fromfile(file, dtype=np.uint8)).view(images, record)
    labels = records[:, label_bytes - 1].long()
    check_range(labels, classes, lambda index: f"{file}, record {index}")
    return Arrays(records[:, label_bytes:].reshape(images, 3, 32, 32), labels)


def read_pickled(layout: Layout, root: Path, download: bool) -> tuple[Arrays, Arrays, tuple[str, ...]]:
    """Safe, because torchvision unpickles only files with the MD5 of the original, whose content is known."""
    from torchvision import datasets  # slow to import, and few runs need it

    reader = getattr(datasets, layout.reader)
    with refused(layout.name, root, download):
        train = reader(str(root), train=True, download=download)
        test = reader(str(root), train=False, download=False)
    return from_torchvision(train), from_torchvision(test), tuple(train.classes)


def from_torchvision(data: Any) -> Arrays:
    """Converts from torchvision's layout `[N, H, W, C]`."""
    pixels = torch.from_numpy(np.ascontiguousarray(data.data.transpose(0, 3, 1, 2)))
    return Arrays(pixels, torch.tensor(data.targets))
